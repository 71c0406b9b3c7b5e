"""Triton kernels of the engine: attention over slots, and what stands between two matrix products in one pass over memory.

Always true: each computes in float32 and rounds where the network on a CPU rounds, so that both give the same numbers beyond the
order of sums.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def attend_one(  # type: ignore[no-untyped-def]
    Q, K, V, OUT, SLOT, PLACE, slot_step, token_step, scale,
    G: tl.constexpr, KV: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One new token of each row against what its slot holds: a program per row and key head, its query heads together."""
    row, head = tl.program_id(0), tl.program_id(1)
    g, d, o = tl.arange(0, 16), tl.arange(0, WIDE), tl.arange(0, BLOCK)
    at = (row * KV * G + head * G + g[:, None]) * D + d[None, :]
    real = (g[:, None] < G) & (d[None, :] < D)
    q = tl.load(Q + at, mask=real, other=0.0)
    length = tl.load(PLACE + row) + 1
    base = tl.load(SLOT + row).to(tl.int64) * slot_step + head * D
    top = tl.full([16], -1e30, tl.float32)
    mass = tl.zeros([16], tl.float32)
    out = tl.zeros([16, WIDE], tl.float32)
    for begin in range(0, length, BLOCK):
        place = begin + o
        is_there = place < length
        from_ = base + place[:, None].to(tl.int64) * token_step + d[None, :]
        k = tl.load(K + from_, mask=is_there[:, None] & (d[None, :] < D), other=0.0)
        z = tl.where(is_there[None, :], tl.dot(q, tl.trans(k), input_precision="ieee") * scale, -1e30)
        higher = tl.maximum(top, tl.max(z, 1))
        p, shrink = tl.exp(z - higher[:, None]), tl.exp(top - higher)
        v = tl.load(V + from_, mask=is_there[:, None] & (d[None, :] < D), other=0.0)
        mass = mass * shrink + tl.sum(p, 1)
        out = out * shrink[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        top = higher
    tl.store(OUT + at, (out / mass[:, None]).to(OUT.dtype.element_ty), mask=real)


@triton.jit
def attend_many(  # type: ignore[no-untyped-def]
    Q, K, V, OUT, ROW, OFFSET, START, NEW, BEFORE, SLOT, slot_step, token_step, scale,
    H: tl.constexpr, G: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """A block of new tokens of one row against what its slot holds, themselves included: a program per block and query head."""
    block, head = tl.program_id(0), tl.program_id(1)
    row, offset = tl.load(ROW + block), tl.load(OFFSET + block)
    start, new, before = tl.load(START + row), tl.load(NEW + row), tl.load(BEFORE + row)
    m, d, o = offset + tl.arange(0, BM), tl.arange(0, WIDE), tl.arange(0, BN)
    real = (m[:, None] < new) & (d[None, :] < D)
    at = ((start + m[:, None]).to(tl.int64) * H + head) * D + d[None, :]
    q = tl.load(Q + at, mask=real, other=0.0)
    base = tl.load(SLOT + row).to(tl.int64) * slot_step + (head // G) * D
    top = tl.full([BM], -1e30, tl.float32)
    mass = tl.zeros([BM], tl.float32)
    out = tl.zeros([BM, WIDE], tl.float32)
    for begin in range(0, before + tl.minimum(offset + BM, new), BN):
        place = begin + o
        from_ = base + place[:, None].to(tl.int64) * token_step + d[None, :]
        is_there = (place[:, None] < before + new) & (d[None, :] < D)
        k = tl.load(K + from_, mask=is_there, other=0.0)
        z = tl.where(place[None, :] <= before + m[:, None], tl.dot(q, tl.trans(k), input_precision="ieee") * scale, -1e30)
        higher = tl.maximum(top, tl.max(z, 1))
        p, shrink = tl.exp(z - higher[:, None]), tl.exp(top - higher)
        v = tl.load(V + from_, mask=is_there, other=0.0)
        mass = mass * shrink + tl.sum(p, 1)
        out = out * shrink[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        top = higher
    tl.store(OUT + at, (out / mass[:, None]).to(OUT.dtype.element_ty), mask=real)


@triton.jit
def add_norm(  # type: ignore[no-untyped-def]
    H, DELTA, WEIGHT, OUT, width, eps, HAS_DELTA: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """h += delta; out = rms(h) * weight: one row of `width` numbers per program."""
    row, d = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    is_there = d < width
    h = tl.load(H + row * width + d, mask=is_there, other=0.0)
    if HAS_DELTA:
        h = (h.to(tl.float32) + tl.load(DELTA + row * width + d, mask=is_there, other=0.0).to(tl.float32)).to(h.dtype)
        tl.store(H + row * width + d, h, mask=is_there)
    x = h.to(tl.float32)
    scaled = (x * tl.rsqrt(tl.sum(x * x, 0) / width + eps)).to(h.dtype)
    weight = tl.load(WEIGHT + d, mask=is_there, other=0.0).to(h.dtype)
    tl.store(OUT + row * width + d, scaled * weight, mask=is_there)


@triton.jit
def turn_and_keep(  # type: ignore[no-untyped-def]
    QKV, BIAS, QNORM, KNORM, COS, SIN, SLOT, PLACE, Q, K, V, slot_step, token_step, eps,
    H: tl.constexpr, KV: tl.constexpr, D: tl.constexpr, HEADS: tl.constexpr, HALF: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_NORM: tl.constexpr,
):  # fmt: skip
    """Queries and keys turned by their positions; queries to Q, keys and values into their slots: a token per program."""
    token = tl.program_id(0).to(tl.int64)
    j, d = tl.arange(0, HEADS), tl.arange(0, HALF)
    half: tl.constexpr = D // 2
    real = (j[:, None] < H + 2 * KV) & (d[None, :] < half)
    at = j[:, None] * D + d[None, :]
    a = tl.load(QKV + token * (H + 2 * KV) * D + at, mask=real, other=0.0)
    b = tl.load(QKV + token * (H + 2 * KV) * D + at + half, mask=real, other=0.0)
    kind = a.dtype
    if HAS_BIAS:
        a = (a.to(tl.float32) + tl.load(BIAS + at, mask=real, other=0.0).to(tl.float32)).to(kind)
        b = (b.to(tl.float32) + tl.load(BIAS + at + half, mask=real, other=0.0).to(tl.float32)).to(kind)
    x, y = a.to(tl.float32), b.to(tl.float32)
    if HAS_NORM:
        scale = tl.rsqrt((tl.sum(x * x, 1) + tl.sum(y * y, 1)) / D + eps)[:, None]
        is_query, is_key = j[:, None] < H, (j[:, None] >= H) & (j[:, None] < H + KV)
        is_there = d[None, :] < half
        wx = tl.load(QNORM + d[None, :], mask=is_query & is_there, other=0.0)
        wx += tl.load(KNORM + d[None, :], mask=is_key & is_there, other=0.0)
        wy = tl.load(QNORM + half + d[None, :], mask=is_query & is_there, other=0.0)
        wy += tl.load(KNORM + half + d[None, :], mask=is_key & is_there, other=0.0)
        is_normed = j[:, None] < H + KV
        x = tl.where(is_normed, ((x * scale).to(kind) * wx.to(kind)).to(tl.float32), x)
        y = tl.where(is_normed, ((y * scale).to(kind) * wy.to(kind)).to(tl.float32), y)
    place = tl.load(PLACE + token)
    cos = tl.load(COS + place * half + d, mask=d < half, other=0.0)[None, :]
    sin = tl.load(SIN + place * half + d, mask=d < half, other=0.0)[None, :]
    is_turned = j[:, None] < H + KV
    first = tl.where(is_turned, x * cos - y * sin, x).to(kind)
    second = tl.where(is_turned, y * cos + x * sin, y).to(kind)
    to_q = real & (j[:, None] < H)
    tl.store(Q + token * H * D + at, first, mask=to_q)
    tl.store(Q + token * H * D + at + half, second, mask=to_q)
    base = tl.load(SLOT + token).to(tl.int64) * slot_step + place.to(tl.int64) * token_step
    to_k = real & (j[:, None] >= H) & (j[:, None] < H + KV)
    tl.store(K + base + at - H * D, first, mask=to_k)
    tl.store(K + base + at - H * D + half, second, mask=to_k)
    to_v = real & (j[:, None] >= H + KV)
    tl.store(V + base + at - (H + KV) * D, first, mask=to_v)
    tl.store(V + base + at - (H + KV) * D + half, second, mask=to_v)


@triton.jit
def pick(  # type: ignore[no-untyped-def]
    LOGITS, HEAT, NOISE, NODE, SPACES, TOKEN, LOGP, width, SPACE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One token of a row by inverse transform of its softmax, or the likeliest, and its log-probability: a row per program.

    Two passes over the logits: the sum of their exponentials, then where the sum up to a place exceeds the noise's share.
    """
    row, o = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    heat, is_spaced = tl.load(HEAT + row), tl.load(NODE + row) == SPACE
    is_greedy = heat <= 0
    heat = tl.where(is_greedy, 1.0, heat)
    top = tl.full([BLOCK], -1e30, tl.float32)
    mass = tl.zeros([BLOCK], tl.float32)
    where = tl.zeros([BLOCK], tl.int32)
    for begin in range(0, width, BLOCK):
        at = begin + o
        is_allowed = (at < width) & ((is_spaced == 0) | (tl.load(SPACES + at, mask=at < width, other=0) != 0))
        x = tl.load(LOGITS + row * width + at, mask=is_allowed, other=-1e30).to(tl.float32) / heat
        higher = tl.maximum(top, x)
        mass = mass * tl.exp(top - higher) + tl.where(is_allowed, tl.exp(x - higher), 0.0)
        where = tl.where(x > top, at, where)
        top = higher
    highest = tl.max(top, 0)
    total = tl.sum(mass * tl.exp(top - highest), 0)
    likeliest = tl.min(tl.where(top == highest, where, width), 0)
    target, so_far, drawn = tl.load(NOISE + row) * total, 0.0, 0
    for begin in range(0, tl.where(is_greedy, 0, width), BLOCK):
        at = begin + o
        is_allowed = (at < width) & ((is_spaced == 0) | (tl.load(SPACES + at, mask=at < width, other=0) != 0))
        x = tl.load(LOGITS + row * width + at, mask=is_allowed, other=-1e30).to(tl.float32) / heat
        p = tl.where(is_allowed, tl.exp(x - highest), 0.0)
        drawn += tl.sum(((so_far + tl.cumsum(p, 0) <= target) & (at < width)).to(tl.int32), 0)
        so_far += tl.sum(p, 0)
    # by rounding, the last sum may stay below the target, or a token that is not allowed may be met
    is_met = (is_greedy == 0) & (drawn < width)
    token = tl.where(is_met, drawn, likeliest)
    is_fit = (is_spaced == 0) | (tl.load(SPACES + token) != 0)
    token = tl.where(is_fit, token, likeliest)
    tl.store(TOKEN + row, token.to(tl.int64))
    tl.store(LOGP + row, tl.load(LOGITS + row * width + token).to(tl.float32) / heat - highest - tl.log(total))


@triton.jit
def copy_beginnings(  # type: ignore[no-untyped-def]
    ALL, SOURCE, SLOT, COUNT, copies, part_step, slot_step, BLOCK: tl.constexpr,
):  # fmt: skip
    """The first COUNT numbers of slots into other slots, in every part (keys or values of a layer), one copy after the other.

    A program per part and block makes all copies of its block, so that one may read what another before it has written.
    """
    at = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    base = ALL + tl.program_id(0).to(tl.int64) * part_step + at
    for i in range(copies):
        is_there = at < tl.load(COUNT + i)
        value = tl.load(base + tl.load(SOURCE + i) * slot_step, mask=is_there)
        tl.store(base + tl.load(SLOT + i) * slot_step, value, mask=is_there)


@triton.jit
def gate(JOINED, OUT, inner, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """silu(first half) * second half, row by row."""
    row, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_there = at < inner
    g = tl.load(JOINED + row * 2 * inner + at, mask=is_there, other=0.0)
    u = tl.load(JOINED + row * 2 * inner + inner + at, mask=is_there, other=0.0)
    x = g.to(tl.float32)
    tl.store(OUT + row * inner + at, (x * tl.sigmoid(x)).to(g.dtype) * u, mask=is_there)
