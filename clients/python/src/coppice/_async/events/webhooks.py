"""Webhooks of the organization, and their deliveries."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any, Literal

from coppice._async.paged_list import AsyncPagedList
from coppice._async.transport import AsyncTransport
from coppice._core.call import Call, json_call
from coppice._core.paths import build_query, encode_segment, require_limit, to_page_items
from coppice._core.records import parse_list, parse_record
from coppice.models import CreatedWebhook, DeliveryInfo, WebhookInfo

_PATH = "/v1/webhooks"
_parse_webhook = parse_record(WebhookInfo)
_parse_created = parse_record(CreatedWebhook)
_parse_delivery = parse_record(DeliveryInfo)


class AsyncWebhooks:
    """Webhooks of your organization: URLs to which the service sends events. Available as `client.webhooks`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self,
        url: str,
        *,
        types: Sequence[str] | None = None,
        description: str | None = None,
        enabled: bool | None = None,
    ) -> CreatedWebhook:
        """Creates a webhook. Keep the `secret` of the result: it is shown only once.

        - `url`: address of the receiver, https
        - `types`: types of events; by default all
        - `description`: text for people, at most 256 bytes
        - `enabled`: false to send nothing

        Example:
            webhook = await client.webhooks.create("https://example.com/hook", types=["sandbox.failed"])
        """
        body = {"url": url, **_settings(types, description, enabled)}
        # A second attempt would make a second webhook.
        return await self._transport.call_json(json_call("POST", _PATH, body, idempotent=False), _parse_created)

    async def list(self) -> builtins.list[WebhookInfo]:
        """Lists webhooks, oldest first.

        Example:
            for webhook in await client.webhooks.list():
                print(webhook.url, webhook.enabled)
        """
        call = Call(method="GET", path=_PATH, idempotent=True)
        return await self._transport.call_json(call, parse_list(_parse_webhook))

    async def get(self, webhook_id: str) -> WebhookInfo | None:
        """Finds a webhook by its id. Returns None when there is none.

        Example:
            webhook = await client.webhooks.get("hook0123456789abcdef0123")
        """
        call = Call(method="GET", path=_webhook_path(webhook_id), idempotent=True)
        return await self._transport.find_json(call, _parse_webhook)

    async def update(
        self,
        webhook_id: str,
        *,
        url: str | None = None,
        types: Sequence[str] | None = None,
        description: str | None = None,
        enabled: bool | None = None,
    ) -> WebhookInfo:
        """Changes a webhook. Settings left out keep their values; an empty list of `types` stands for all.

        With `enabled=True`, one that the service has disabled is used again, and what waits is sent.

        Example:
            await client.webhooks.update(webhook.id, enabled=True)
        """
        body = {"url": url, **_settings(types, description, enabled)}
        call = json_call("PATCH", _webhook_path(webhook_id), body, idempotent=True)
        return await self._transport.call_json(call, _parse_webhook)

    async def delete(self, webhook_id: str) -> None:
        """Deletes a webhook with its deliveries.

        Example:
            await client.webhooks.delete(webhook.id)
        """
        await self._transport.call_empty(Call(method="DELETE", path=_webhook_path(webhook_id), idempotent=True))

    async def rotate_secret(self, webhook_id: str, *, overlap_seconds: int | None = None) -> CreatedWebhook:
        """Makes a new secret. For `overlap_seconds`, one day by default, messages are signed with the old one, too.

        Example:
            secret = (await client.webhooks.rotate_secret(webhook.id, overlap_seconds=3600)).secret
        """
        body = {"overlap_seconds": overlap_seconds}
        # A second attempt would make the first new secret the old one.
        call = json_call("POST", f"{_webhook_path(webhook_id)}/rotate", body, idempotent=False)
        return await self._transport.call_json(call, _parse_created)

    async def test(self, webhook_id: str) -> DeliveryInfo:
        """Sends a message of type `webhook.test`. Its delivery shows what became of it.

        Example:
            delivery = await client.webhooks.test(webhook.id)
        """
        call = Call(method="POST", path=f"{_webhook_path(webhook_id)}/test", idempotent=False)
        return await self._transport.call_json(call, _parse_delivery)

    def deliveries(
        self,
        webhook_id: str,
        *,
        state: Literal["pending", "delivered", "failed"] | None = None,
        limit: int | None = None,
    ) -> AsyncPagedList[DeliveryInfo]:
        """Lists the messages of a webhook, newest first, with their last attempts.

        Example:
            async for delivery in client.webhooks.deliveries(webhook.id, state="failed"):
                print(delivery.type, delivery.attempts[-1].error)
        """
        require_limit(limit)
        return AsyncPagedList(
            self._transport,
            path=f"{_webhook_path(webhook_id)}/deliveries",
            query=build_query({"state": state, "limit": to_page_items(limit)}),
            parse_page=parse_list(_parse_delivery),
            limit=limit,
        )

    async def retry(self, webhook_id: str, delivery_id: str) -> DeliveryInfo:
        """Sends a message once more, with all its attempts.

        Example:
            async for delivery in client.webhooks.deliveries(webhook.id, state="failed"):
                await client.webhooks.retry(webhook.id, delivery.id)
        """
        delivery = encode_segment(delivery_id, "the id of the delivery")
        path = f"{_webhook_path(webhook_id)}/deliveries/{delivery}/retry"
        return await self._transport.call_json(Call(method="POST", path=path, idempotent=True), _parse_delivery)


def _settings(types: Sequence[str] | None, description: str | None, enabled: bool | None) -> dict[str, Any]:
    return {"types": None if types is None else list(types), "description": description, "enabled": enabled}


def _webhook_path(webhook_id: str) -> str:
    return f"{_PATH}/{encode_segment(webhook_id, 'the id of the webhook')}"
