"""Budgets of the organization and its teams."""

from __future__ import annotations

import builtins
from collections.abc import Sequence

from coppice._async.transport import AsyncTransport
from coppice._core.call import Call, json_call
from coppice._core.paths import encode_segment
from coppice._core.records import parse_list, parse_record
from coppice.models import Budget

_parse_budget = parse_record(Budget)


class AsyncBudgets:
    """Budgets of your organization and its teams. Available as `client.budgets`.

    A budget stops nothing: when the cost of a month reaches a part of it, there is one event `budget.reached`, which
    webhooks deliver.
    """

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> builtins.list[Budget]:
        """Lists the budgets: that of the organization, and those of its teams.

        A key that is limited to its team gets that of the team.

        Example:
            for budget in await client.budgets.list():
                print(budget.scope, budget.cost_cents / budget.month_cents)
        """
        call = Call(method="GET", path="/v1/budgets", idempotent=True)
        return await self._transport.call_json(call, parse_list(_parse_budget))

    async def set(self, scope: str, *, month_cents: int, alert_percents: Sequence[int] | None = None) -> Budget:
        """Sets the budget of the organization (`scope` is `organization`) or of a team (its id).

        There is an event at each of `alert_percents`, once in each month; the default is 50, 80 and 100. After a
        deletion, and with another amount, the events of the current month begin anew.

        Example:
            await client.budgets.set("organization", month_cents=50_000, alert_percents=[80, 100])
        """
        body: dict[str, object] = {"month_cents": month_cents}
        if alert_percents is not None:
            body["alert_percents"] = [*alert_percents]
        call = json_call("PUT", _budget_path(scope), body, idempotent=True)
        return await self._transport.call_json(call, _parse_budget)

    async def delete(self, scope: str) -> None:
        """Deletes a budget.

        Example:
            await client.budgets.delete("organization")
        """
        await self._transport.call_empty(Call(method="DELETE", path=_budget_path(scope), idempotent=True))


def _budget_path(scope: str) -> str:
    return f"/v1/budgets/{encode_segment(scope, 'the scope')}"
