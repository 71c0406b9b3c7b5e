"""plugin_name keeps the contract of a loss, and cuts off what was cut off by hand."""

import numpy as np

from counterpoint.app.templates.loss import limited, plugin_name
from counterpoint.testing import check_loss


def test_it_keeps_the_contract() -> None:
    check_loss(plugin_name)


def test_a_limit_by_hand() -> None:
    assert limited(np.array([-5.0, 1.0, 2.5]), 2.0).tolist() == [-2.0, 1.0, 2.0]
