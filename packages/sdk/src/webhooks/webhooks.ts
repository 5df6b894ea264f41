import type { CallOptions } from '../transport/client-options.ts';
import { nullIfMissing } from '../transport/errors.ts';
import { fetchPage, PagedList, requireLimit, toPageItems } from '../transport/paged-list.ts';
import type { CallRequest, Transport } from '../transport/transport.ts';
import { buildQuery, buildWireBody, encodeSegment, readArray } from '../transport/wire.ts';
import {
  parseCreatedWebhook,
  parseDelivery,
  parseWebhook,
  type CreatedWebhook,
  type DeliveryInfo,
  type WebhookInfo,
} from './webhook-record.ts';

/** Settings of a webhook that can be changed. */
export interface WebhookOptions {
  /** Address of the receiver, https. */
  url?: string | undefined;
  /** Types of events. An empty array stands for all. */
  types?: readonly string[] | undefined;
  /** Text for people, at most 256 bytes. */
  description?: string | undefined;
  /** False to send nothing. */
  enabled?: boolean | undefined;
}

/** Settings of a new webhook. */
export interface CreateWebhookOptions extends WebhookOptions {
  url: string;
}

/** Options of a rotation. */
export interface RotateWebhookOptions extends CallOptions {
  /** Seconds in which messages are signed with the old secret, too. Default one day. */
  overlapSeconds?: number | undefined;
}

/** Options of the list of deliveries. */
export interface ListDeliveriesOptions extends CallOptions {
  /** Only deliveries in this state. */
  state?: DeliveryInfo['state'] | undefined;
  /** Maximum number over all pages, an integer above 0. Default: no limit. */
  limit?: number | undefined;
}

const FIELDS = {
  url: 'url',
  types: 'types',
  description: 'description',
  enabled: 'enabled',
} as const satisfies Record<keyof WebhookOptions, string>;
const PATH = '/v1/webhooks';
const JSON_HEADERS = { 'content-type': 'application/json' };

/**
 * Webhooks of your organization: URLs to which the service sends events. Available as `client.webhooks`. Calls reject
 * with {@link CoppiceError}, and with `TypeError` for an empty id or an unknown option.
 */
export class Webhooks {
  readonly #transport: Transport;

  /** Called by {@link Coppice} only. */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Creates a webhook. Keep the secret of the answer: it is shown only once.
   *
   * @example
   * const { secret } = await client.webhooks.create({ url: 'https://example.com/hook', types: ['sandbox.failed'] });
   */
  create(options: CreateWebhookOptions, call: CallOptions = {}): Promise<CreatedWebhook> {
    const body = JSON.stringify(buildWireBody(options, FIELDS, 'webhooks.create'));
    // A second attempt would make a second webhook.
    const request = { method: 'POST', path: PATH, headers: JSON_HEADERS, body, idempotent: false } as const;
    return this.#call({ ...request, signal: call.signal }, parseCreatedWebhook);
  }

  /**
   * Lists webhooks, oldest first.
   *
   * @example
   * for (const { url, enabled } of await client.webhooks.list()) console.log(url, enabled);
   */
  list(options: CallOptions = {}): Promise<WebhookInfo[]> {
    return this.#call({ method: 'GET', path: PATH, idempotent: true, signal: options.signal }, (value) =>
      readArray(value, 'the list of webhooks', parseWebhook),
    );
  }

  /**
   * Finds a webhook by its id. Resolves with null when there is none.
   *
   * @example
   * const webhook = await client.webhooks.get('hook0123456789abcdef0123');
   */
  async get(id: string, options: CallOptions = {}): Promise<WebhookInfo | null> {
    const request = { method: 'GET', path: pathOf(id), idempotent: true, signal: options.signal } as const;
    return nullIfMissing(this.#call(request, parseWebhook));
  }

  /**
   * Changes a webhook. With `enabled: true`, one that the service has disabled is used again, and what waits is sent.
   *
   * @example
   * await client.webhooks.update('hook0123456789abcdef0123', { enabled: true });
   */
  update(id: string, options: WebhookOptions, call: CallOptions = {}): Promise<WebhookInfo> {
    const body = JSON.stringify(buildWireBody(options, FIELDS, 'webhooks.update'));
    const request = {
      method: 'PATCH',
      path: pathOf(id),
      headers: JSON_HEADERS,
      body,
      idempotent: true,
    } as const;
    return this.#call({ ...request, signal: call.signal }, parseWebhook);
  }

  /**
   * Deletes a webhook with its deliveries.
   *
   * @example
   * await client.webhooks.delete('hook0123456789abcdef0123');
   */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    const request = { method: 'DELETE', path: pathOf(id), idempotent: true, signal: options.signal } as const;
    await this.#transport.callEmpty(request);
  }

  /**
   * Makes a new secret. Until the overlap ends, messages are signed with both.
   *
   * @example
   * const { secret } = await client.webhooks.rotateSecret('hook0123456789abcdef0123', { overlapSeconds: 3600 });
   */
  rotateSecret(id: string, options: RotateWebhookOptions = {}): Promise<CreatedWebhook> {
    const { overlapSeconds, signal } = options;
    const fields = { overlapSeconds: 'overlap_seconds' } as const;
    const body = JSON.stringify(buildWireBody({ overlapSeconds }, fields, 'webhooks.rotateSecret'));
    const path = `${pathOf(id)}/rotate`;
    const request = { method: 'POST', path, headers: JSON_HEADERS, body, idempotent: false } as const;
    return this.#call({ ...request, signal }, parseCreatedWebhook);
  }

  /**
   * Sends a message of type `webhook.test`. Its delivery shows what became of it.
   *
   * @example
   * await client.webhooks.test('hook0123456789abcdef0123');
   */
  test(id: string, options: CallOptions = {}): Promise<DeliveryInfo> {
    const request = { method: 'POST', path: `${pathOf(id)}/test`, idempotent: false } as const;
    return this.#call({ ...request, signal: options.signal }, parseDelivery);
  }

  /**
   * Lists the messages of a webhook, newest first, with their last attempts. Throws `TypeError` for an invalid `limit`.
   *
   * @example
   * const failed = await client.webhooks.deliveries('hook0123456789abcdef0123', { state: 'failed' });
   */
  deliveries(id: string, options: ListDeliveriesOptions = {}): PagedList<DeliveryInfo> {
    const { limit, state, signal } = options;
    requireLimit(limit);
    const path = `${pathOf(id)}/deliveries`;
    return new PagedList({
      firstQuery: buildQuery({ state, limit: toPageItems(limit) }),
      fetchPage: (query) =>
        fetchPage(this.#transport, { path, query, signal }, (value) =>
          readArray(value, 'the list of deliveries', parseDelivery),
        ),
      limit,
    });
  }

  /**
   * Sends a message once more, with all its attempts.
   *
   * @example
   * for await (const { id } of client.webhooks.deliveries(hook, { state: 'failed' })) await client.webhooks.retry(hook, id);
   */
  retry(id: string, deliveryId: string, options: CallOptions = {}): Promise<DeliveryInfo> {
    const path = `${pathOf(id)}/deliveries/${encodeSegment(deliveryId, 'the id of the delivery')}/retry`;
    const request = { method: 'POST', path, idempotent: true, signal: options.signal } as const;
    return this.#call(request, parseDelivery);
  }

  async #call<Value>(request: CallRequest, parse: (value: unknown) => Value): Promise<Value> {
    return (await this.#transport.callJson(request, parse)).value;
  }
}

function pathOf(id: string): string {
  return `${PATH}/${encodeSegment(id, 'the id of the webhook')}`;
}
