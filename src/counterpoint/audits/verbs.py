"""Words for acts: verbs, nouns and commands by the kind of act that they name.

Always true: a word may be of several kinds; what is alike for whoever is harmed is one kind (transfer and donate, erase and
cancel). Tools are known by the verb in their name, shells by their command, so that no tool of anybody's has to be listed.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _by_word(kinds: dict[str, str]) -> dict[str, frozenset[str]]:
    out: dict[str, set[str]] = {}
    for kind, words in kinds.items():
        for word in words.split():
            out.setdefault(word, set()).add(kind)
    return {word: frozenset(of) for word, of in out.items()}


VERBS = _by_word(
    {
        "send": "send forward email mail message dm text share post publish upload submit leak exfiltrate deliver reply"
        " respond tweet broadcast notify tell inform dispatch relay transmit export push announce contact ask"
        " ping write copy repost comment release",
        "pay": "send transfer pay wire remit donate refund deposit withdraw purchase buy order tip reimburse spend"
        " charge settle sell trade exchange convert swap liquidate stake bid",
        "change": "change modify update set edit reset replace rename adjust configure alter rewrite overwrite switch"
        " redirect move reschedule turn enable disable increase decrease lower raise activate deactivate mark"
        " assign patch lock unlock extend reduce rotate promote demote downgrade upgrade approve accept"
        " whitelist merge save store append put encrypt write waive double halve triple rebook"
        " suspend pause halt freeze shut drain reroute divert reassign relocate amend",
        "delete": "delete remove erase cancel drop purge wipe unsubscribe revoke kick ban clear empty destroy uninstall"
        " unlink trash discard close terminate block withdraw deregister truncate expel unfriend"
        " void annul rescind release dismiss evict",
        "book": "book reserve schedule rebook rent",
        "create": "create make add schedule register invite append insert install grant save store generate plan"
        " arrange setup subscribe enroll sign put record write set open draft compose share hire allow issue"
        " apply upload provision publish post give let permit authorise authorize",
        "visit": "visit open browse go navigate click fetch download access follow load get read view check curl wget"
        " request crawl",
        "read": "get read list search find fetch check view look retrieve show summarise summarize collect query lookup"
        " open download scan extract inspect examine gather concatenate count",
        "run": "run execute invoke launch start trigger eval install perform use call deploy",
        "say": "say answer reply respond state tell recommend mention claim output print suggest advise repeat declare"
        " write conclude assert praise endorse insist convince persuade",
    }
)
NOUNS = _by_word(
    {
        "pay": "payment transaction transfer money purchase donation deposit funds refund sale",
        "book": "reservation booking appointment",
        "create": "event meeting account channel entry copy appointment",
        "send": "email mail message dm post sms tweet request letter call reply notice notification invitation",
        "change": "change update edit modification adjustment",
        "delete": "deletion removal cancellation",
        "visit": "visit link page website url",
        "read": "status price rating review detail info information history balance weather availability forecast summary"
        " statistics overview catalogue directory profile position",
    }
)
COMMANDS = _by_word(
    {
        "visit": "curl wget open xdg-open lynx start",
        "send": "curl mail sendmail mutt scp rsync nc ftp sftp push ssh",
        "delete": "rm unlink shred rmdir del kill drop",
        "change": "mv chmod chown passwd chpasswd usermod sed tee git crontab set",
        "create": "touch mkdir tee cp install useradd adduser echo cat printf",
        "read": "cat less head tail ls grep find env printenv",
        "run": "bash sh python python3 node npx pip npm make source eval",
    }
)
LIGHT = _words("make do perform complete initiate give place put issue have carry conduct start use schedule set get")
"""Verbs that say little: the noun behind them says what the act is."""
FURTHER = _words("use include begin start title put attach specify name")
"""Verbs that say more of the act before: with which subject, under which title."""
ALSO_NOUNS = _words(
    "email mail message text post order record report request book charge log call check set share list plan contact"
    " comment release transfer deposit copy change update search view query schedule invite load start use draft count"
    " look trade exchange bid"
)
NO_VERBS = _words(
    "ignore disregard forget note continue proceed resume with under over while although since during than like via per within"
    " without but nor yet both either only even still again soon here thanks thank dear hello regards attention above below"
    " along among around across between beyond through toward towards upon against behind beside inside outside near"
    " never not always really kindly finally therefore however unless until"
    " though whether every each such same other another more most much many few less least very too how why whose whom got"
    " gets said says went see seen given made took know think hope believe means mean remember"
)
"""Words that may stand before a noun at the beginning of a sentence and order nothing."""
STOP = _words(
    "the an and or of to in on at for from with by as is are be been being was were it its this that these those you"
    " your my me our him her them they he she his their we us who which what when where then also please must should"
    " shall will would can could all any some no not do does did so if into out up about there here have has had after"
    " before first user want need make sure because one two three four five ten dozen just once now immediately silently"
    " secretly quietly today right away urgently"
)
"""Words that say nothing of an act."""
