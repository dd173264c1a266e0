"""One trainer that executes any plan, and what it costs."""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:
    from .fit import fit as fit
    from .flops import count_macs as count_macs
    from .ledger import Ledger as Ledger
    from .ledger import price as price
    from .trainer import Trainer as Trainer

__getattr__, __dir__, __all__ = attach(
    __name__,
    {"fit": "fit", "flops": "count_macs", "ledger": "Ledger price", "trainer": "Trainer"},
)
