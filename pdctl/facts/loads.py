"""``/v1/loads`` -> Loads: the counts of an engine's queues, one row a data-parallel rank.

Shapes, seen on recorded answers and in ``entrypoints/v1_loads.py`` and the schedulers' ``get_load(s)``:

- 0.5.8.post1 to 0.5.11: ``{"timestamp", "version", "dp_rank_count", "loads": [...]}``, rows without ``dp_rank`` and
  with the bootstrap queue under ``prefill_prealloc_queue_reqs``.
- 0.5.12.post1 on: ``prefill_bootstrap_queue_reqs``. 0.5.13 on: rows carry ``dp_rank``. 0.5.16 on: rows carry their
  snapshot's own ``timestamp``. The outer ``timestamp`` is always the time of the answer and says nothing of the rows.
- ``/get_load`` (0.4.9 to 0.5.20): a bare list of ``{dp_rank, num_reqs, num_waiting_reqs, num_tokens}``.

``num_waiting_reqs`` is not the waiting queue: on prefill it holds the bootstrap queue too, on decode prealloc, transfer
and retracted. ``LoadRow.waiting`` is the waiting queue alone: ``queues.waiting``, or without that section what is left
of ``num_waiting_reqs`` (both come from one pass over the queues). ``/get_load`` gives no queue apart: there ``waiting``
is the sum it names, ``running`` is what is left of ``num_reqs``, and its tokens are the used ones only while nothing
waits (they include those to come).
"""

from __future__ import annotations

from collections.abc import Sequence

from pdctl.facts.base import Unreadable
from pdctl.facts.json_body import count_of, epoch_of, number_of, object_of, read_json, text_of
from pdctl.model.answer import Answer, Why
from pdctl.model.cluster import Instance
from pdctl.model.engine import LoadRow, Loads

# What num_waiting_reqs holds beside the waiting queue, by the mode the row names.
_ALSO_WAITING = {
    "null": (),
    "prefill": ("prefill_bootstrap_queue_reqs",),
    "decode": ("decode_prealloc_queue_reqs", "decode_transfer_queue_reqs", "decode_retracted_queue_reqs"),
}
_OLD_BOOTSTRAP = "prefill_prealloc_queue_reqs"


def read(answer: Answer, instance: Instance | None) -> Loads:
    """The rows. Raises Unreadable: EMPTY (also where no rank reported), NOT_JSON, TRUNCATED."""
    body = read_json(answer)
    outer = object_of(body)
    rows = body if isinstance(body, list) else outer.get("loads")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise Unreadable(Why.NOT_JSON, "JSON without a list of loads")
    if not rows:
        raise Unreadable(Why.EMPTY, "no rank has reported its load")
    ranks = _ranks(rows)
    return Loads(
        tuple(_row(row, rank) for row, rank in zip(rows, ranks, strict=True)),
        text_of(outer.get("version")),
        epoch_of(outer.get("timestamp")),
    )


def _ranks(rows: Sequence[dict[str, object]]) -> list[int | None]:
    """Each row's data-parallel rank. Rows without one stand in the order of their ranks; a single one has none."""
    said = [count_of(row.get("dp_rank")) for row in rows]
    if len(rows) == 1:
        return said
    return [at if rank is None else rank for at, rank in enumerate(said)]


def _row(row: dict[str, object], rank: int | None) -> LoadRow:
    if "num_reqs" in row and "num_running_reqs" not in row:
        return _old_row(row, rank)
    pd, queues = dict(object_of(row.get("disaggregation"))), object_of(row.get("queues"))
    pd.setdefault("prefill_bootstrap_queue_reqs", pd.get(_OLD_BOOTSTRAP))
    return LoadRow(
        dp=rank,
        timestamp=epoch_of(row.get("timestamp")),
        mode=text_of(pd.get("mode")),
        running=count_of(row.get("num_running_reqs")),
        waiting=_waiting(row, pd, queues),
        bootstrap=count_of(pd["prefill_bootstrap_queue_reqs"]),
        inflight=count_of(pd.get("prefill_inflight_queue_reqs")),
        prealloc=count_of(pd.get("decode_prealloc_queue_reqs")),
        transfer=count_of(pd.get("decode_transfer_queue_reqs")),
        retracted=count_of(pd.get("decode_retracted_queue_reqs", queues.get("retracted"))),
        prealloc_ready=count_of(queues.get("prealloc_ready")),
        used_tokens=count_of(row.get("num_used_tokens")),
        max_tokens=count_of(row.get("max_total_num_tokens")),
        token_usage=number_of(row.get("token_usage")),
        gen_throughput=number_of(row.get("gen_throughput")),
        max_running=count_of(row.get("max_running_requests")),
    )


def _waiting(row: dict[str, object], pd: dict[str, object], queues: dict[str, object]) -> int | None:
    if "waiting" in queues:
        return count_of(queues["waiting"])
    parts = _ALSO_WAITING.get(text_of(pd.get("mode")) or "")
    left = [count_of(row.get("num_waiting_reqs")), *(count_of(pd.get(part)) for part in parts or ())]
    if parts is None or None in left:
        return None
    total, *others = (count for count in left if count is not None)
    return total - sum(others) if total >= sum(others) else None


def _old_row(row: dict[str, object], rank: int | None) -> LoadRow:
    requests, waiting = count_of(row.get("num_reqs")), count_of(row.get("num_waiting_reqs"))
    running = requests - waiting if requests is not None and waiting is not None else None
    return LoadRow(
        dp=rank,
        running=running if running is not None and running >= 0 else None,
        waiting=waiting,
        used_tokens=count_of(row.get("num_tokens")) if waiting == 0 else None,
        summed=True,
    )
