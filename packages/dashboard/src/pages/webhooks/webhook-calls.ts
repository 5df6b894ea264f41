/** Calls about webhooks as code. */
import { toLiteral, toPython, toPythonArguments, type writeSnippet } from '../../ui/snippets.ts';

type Call = Parameters<typeof writeSnippet>[0];

export interface WebhookFields {
  url: string;
  types: readonly string[];
  description: string;
}

const PATH = '/v1/webhooks';

export const LIST_WEBHOOKS: Call = {
  method: 'GET',
  path: PATH,
  typescript: 'for (const { url, enabled } of await client.webhooks.list()) console.log(url, enabled);',
  python: 'for webhook in client.webhooks.list():\n    print(webhook.url, webhook.enabled)',
};

export function createWebhookCall({ url, types, description }: WebhookFields): Call {
  const options = {
    types: types.length === 0 ? undefined : types,
    description: description === '' ? undefined : description,
  };
  return {
    method: 'POST',
    path: PATH,
    body: { url, ...options },
    typescript: `const { id, secret } = await client.webhooks.create(${toLiteral({ url, ...options })});`,
    python: `webhook = client.webhooks.create(${[toPython(url), toPythonArguments(options)].filter(Boolean).join(', ')})`,
  };
}

export function updateWebhookCall(id: string, options: Partial<WebhookFields> & { enabled?: boolean }): Call {
  return {
    method: 'PATCH',
    path: pathOf(id),
    body: options,
    typescript: `await client.webhooks.update(${toLiteral(id)}, ${toLiteral(options)});`,
    python: `client.webhooks.update(${toPython(id)}, ${toPythonArguments({ ...options })})`,
  };
}

export function deleteWebhookCall(id: string): Call {
  return {
    method: 'DELETE',
    path: pathOf(id),
    typescript: `await client.webhooks.delete(${toLiteral(id)});`,
    python: `client.webhooks.delete(${toPython(id)})`,
  };
}

export function testWebhookCall(id: string): Call {
  return {
    method: 'POST',
    path: `${pathOf(id)}/test`,
    typescript: `await client.webhooks.test(${toLiteral(id)});`,
    python: `client.webhooks.test(${toPython(id)})`,
  };
}

export function rotateSecretCall(id: string, overlapSeconds: number): Call {
  return {
    method: 'POST',
    path: `${pathOf(id)}/rotate`,
    body: { overlap_seconds: overlapSeconds },
    typescript: `const { secret } = await client.webhooks.rotateSecret(${toLiteral(id)}, ${toLiteral({ overlapSeconds })});`,
    python: `secret = client.webhooks.rotate_secret(${toPython(id)}, overlap_seconds=${overlapSeconds}).secret`,
  };
}

export function listDeliveriesCall(id: string): Call {
  return {
    method: 'GET',
    path: `${pathOf(id)}/deliveries`,
    typescript: `for await (const { type, state } of client.webhooks.deliveries(${toLiteral(id)})) console.log(type, state);`,
    python: `for delivery in client.webhooks.deliveries(${toPython(id)}):\n    print(delivery.type, delivery.state)`,
  };
}

export function retryCall(id: string, deliveryId: string): Call {
  return {
    method: 'POST',
    path: `${pathOf(id)}/deliveries/${encodeURIComponent(deliveryId)}/retry`,
    typescript: `await client.webhooks.retry(${toLiteral(id)}, ${toLiteral(deliveryId)});`,
    python: `client.webhooks.retry(${toPython(id)}, ${toPython(deliveryId)})`,
  };
}

function pathOf(id: string): string {
  return `${PATH}/${encodeURIComponent(id)}`;
}
