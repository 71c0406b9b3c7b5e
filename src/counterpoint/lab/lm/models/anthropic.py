"""`anthropic:NAME`: a model behind an endpoint that speaks Anthropic's Messages API.

Always true: nothing is asked of the endpoint before the first call; an option that does not exist is an error that names the
nearest one.
"""

from __future__ import annotations

from typing import Any

from counterpoint.lab.lm.model import Model
from counterpoint.lab.lm.models.openai_ import endpoint_settings


def anthropic(spec: str, **options: Any) -> Model:
    """The model that `spec` names; options are those of `openai:NAME`, and the key is in ANTHROPIC_API_KEY."""
    from counterpoint.lab.lm.endpoint.messages_api import MessagesModel

    return MessagesModel(spec, **endpoint_settings("anthropic", options))
