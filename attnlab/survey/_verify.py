"""Checking a store: every certificate is read back from the disk and recomputed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .._attention_file import read_matrix
from ..certify import load
from ..learned import CapturedHead
from ._store import read_cells, read_settings


def verify_store(root: str | Path, report: Callable[[str], None] = lambda line: None) -> dict[str, str]:
    """Recompute the proofs of every cell of a store.

    A cell is proved when the stored logits are those it names, and both its certificates hold for them
    and claim what the cell says: a_{lower} > eps from below (unless lower is 0), a_{upper+1} <= eps
    from above.

    Returns:
        by cell id what is wrong with it, and "" for a proved one. Cells without numbers are left out.

    Raises:
        ValueError: no store there.
    """
    root = Path(root)
    cells = [cell for cell in read_cells(root).to_pylist() if cell["upper"] is not None]
    if not read_settings(root).certificates:
        return dict.fromkeys((cell["cell"] for cell in cells), "certificates were not kept")
    searches: dict[str, dict[str, Any]] = {}
    for cell in cells:
        searches.setdefault(cell["search"], cell)
    proofs: dict[str, _Proofs] = {}
    for done, (search, cell) in enumerate(searches.items()):
        report(f"verifying the certificates of {done:,} of {len(searches):,} matrices")
        proofs[search] = _Proofs(root / "certificates" / search, cell)
    return {cell["cell"]: proofs[cell["search"]].fault(cell) for cell in cells}


class _Proofs:
    """The certificates of one search, each verified once."""

    def __init__(self, folder: Path, cell: dict[str, Any]):
        self.damage = ""
        self.proved: dict[str, dict[str, Any]] = {}  # claim by file name
        self.faults: dict[str, str] = {}
        try:
            logits = read_matrix(folder / "subject.npz", "logits").array
        except (OSError, ValueError) as error:
            self.damage = f"its logits cannot be read ({error})"
            return
        head = CapturedHead("", "", 0, 0, 0, (logits / cell["beta"]).astype(np.float32))
        if head.digest != cell["digest"]:
            self.damage = "the stored logits are those of another matrix"
            return
        for path in sorted(folder.glob("rank-*.npz")):
            try:
                certificate = load(path)
            except (OSError, ValueError) as error:
                self.faults[path.name] = str(error)
                continue
            verdict = certificate.verify({"logits": logits})
            if verdict:
                self.proved[path.name] = {"kind": certificate.kind, **certificate.claim}
            else:
                self.faults[path.name] = f"{path.name}: {verdict.statement}"

    def fault(self, cell: dict[str, Any]) -> str:
        """What keeps a cell from being proved."""
        if self.damage:
            return self.damage
        wrong = []
        for end in ("lower", "upper"):
            if end == "lower" and cell["lower"] == 0:
                continue
            path = cell[f"{end}_certificate"]
            claim = self.proved.get(Path(path).name) if path else None
            if claim is None:
                missing = f"the {end} end has no certificate"
                wrong.append(self.faults.get(Path(path).name, missing) if path else missing)
            elif not _proves(claim, cell, end):
                wrong.append(f"{path} does not prove the {end} end")
        return "; ".join(wrong)


def _proves(claim: dict[str, Any], cell: dict[str, Any], end: str) -> bool:
    if not claim["kind"].startswith(f"rank-{end}"):
        return False
    if end == "lower":
        return claim["rank"] + 1 == cell["lower"] and claim["error"] > cell["eps"]
    return claim["rank"] == cell["upper"] and claim["error"] <= cell["eps"]
