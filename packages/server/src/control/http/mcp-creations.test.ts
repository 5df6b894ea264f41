/** Sandboxes of calls whose caller learns nothing of them: without an idle timeout they would run for ever. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { AccountClient } from '../testing/requests/account-client.ts';
import { INVITATION, startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import { callTool, MCP_HEADERS, sendToolCall } from '../testing/requests/mcp-call.ts';

const REVISIONS = ['2025', '2026'] as const;
/** Longer than control waits until it cuts the requests of a revoked key. */
const AFTER_REVOCATION_MS = 4_000;

interface Gate {
  begun: Promise<void>;
  open: () => void;
  wait: () => Promise<void>;
}

function buildGate(): Gate {
  const begun = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  const wait = (): Promise<void> => {
    begun.resolve();
    return gate.promise;
  };
  return { begun: begun.promise, open: gate.resolve, wait };
}

let harness: ControlHarness;
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());

/** The records of all sandboxes with a label, also of those that have ended. */
async function listStates(label: string, of = harness): Promise<string[]> {
  await using db = of.openDatabase();
  const rows = await db.selectFrom('sandboxes').select(['status', 'labels']).execute();
  return rows.filter(({ labels }) => JSON.stringify(labels).includes(label)).map(({ status }) => status);
}

const waitForEnd = (label: string, count = 1): Promise<void> =>
  waitFor(`the end of ${label}`, async () => {
    const states = await listStates(label);
    return states.length === count && states.every((status) => status === 'destroyed');
  });

describe('a sandbox whose create is under way is destroyed', () => {
  let owner: AccountClient;
  before(async () => {
    owner = await AccountClient.signUp(harness, { invitation: INVITATION });
  });

  for (const revision of REVISIONS)
    test(`when the client leaves (${revision})`, async () => {
      const gate = buildGate();
      harness.runner.onCreate = gate.wait;
      const controller = new AbortController();
      const args = { timeout: 0, labels: { of: `left-${revision}` } };
      const options = { revision, signal: controller.signal };
      const call = sendToolCall(harness, 'create_sandbox', args, options).then((response) => response.text());
      const rejected = assert.rejects(call);
      await gate.begun;
      controller.abort(new Error('enough'));
      await rejected;
      gate.open();
      await waitForEnd(`left-${revision}`);
    });

  test('when a notification cancels the call', async () => {
    const gate = buildGate();
    harness.runner.onCreate = gate.wait;
    const [session, args] = ['one', { timeout: 0, labels: { of: 'cancelled' } }];
    const call = sendToolCall(harness, 'create_sandbox', args, { session, id: 7 });
    await gate.begun;
    const body = { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 7 } };
    const headers = { ...MCP_HEADERS, 'mcp-session-id': session };
    assert.equal((await harness.fetch('POST', '/mcp', { body, headers })).status, 202);
    await (await call).text();
    gate.open();
    await waitForEnd('cancelled');
  });

  for (const revision of REVISIONS)
    test(`when the key is revoked (${revision})`, async () => {
      const { key, id } = (await owner.call('POST', `${owner.team}/keys`, { name: `x${revision}` })).body;
      const gate = buildGate();
      harness.runner.onCreate = gate.wait;
      const args = { timeout: 0, labels: { of: `revoked-${revision}` } };
      const call = sendToolCall(harness, 'create_sandbox', args, { revision, apiKey: key })
        .then((response) => response.text())
        .catch(() => undefined);
      await gate.begun;
      assert.equal((await owner.call('DELETE', `${owner.team}/keys/${id}`)).status, 204);
      await new Promise((resolve) => setTimeout(resolve, AFTER_REVOCATION_MS));
      gate.open();
      await call;
      await waitForEnd(`revoked-${revision}`);
    });

  test('when the client leaves while the rate limit is reached', async () => {
    await using other = await startHarness({ requestsPerSecond: 1, requestBurst: 50 });
    const gate = buildGate();
    other.runner.onCreate = gate.wait;
    const controller = new AbortController();
    const args = { timeout: 0, labels: { of: 'limited' } };
    const call = sendToolCall(other, 'create_sandbox', args, { signal: controller.signal });
    const rejected = assert.rejects(call.then((response) => response.text()));
    await gate.begun;
    controller.abort(new Error('enough'));
    await rejected;
    const isRefused = async (): Promise<boolean> => {
      const answer = await other.fetch('GET', '/v1/runs');
      await answer.text();
      return answer.status === 429;
    };
    while (!(await isRefused()));
    gate.open();
    await waitFor('the end', async () => {
      await isRefused();
      return (await listStates('limited', other))[0] === 'destroyed';
    });
  });

  test('when the service shuts down meanwhile', async () => {
    await using other = await startHarness();
    const gate = buildGate();
    other.runner.onCreate = gate.wait;
    const controller = new AbortController();
    const args = { timeout: 0, labels: { of: 'shutdown' } };
    const call = sendToolCall(other, 'create_sandbox', args, { signal: controller.signal });
    const rejected = assert.rejects(call.then((response) => response.text()));
    await gate.begun;
    const stopped = other.stopControl();
    controller.abort(new Error('enough'));
    await rejected;
    gate.open();
    await stopped;
    assert.deepEqual(await listStates('shutdown', other), ['destroyed']);
  });
});

test('copies of a fork, and a restored sandbox, are destroyed as well', async () => {
  await using other = await startHarness();
  const { id: sandboxId } = await other.create({ labels: { of: 'copied' } });
  const { value } = await callTool(other, 'checkpoint', { sandboxId });
  const { captures } = other.runner;
  for (const [tool, args, hook] of [
    ['fork', { sandboxId, count: 3 }, 'onFork'],
    ['restore', { snapshotId: value['snapshotId'], timeout: 0 }, 'onRestore'],
  ] as const) {
    const gate = buildGate();
    captures[hook] = gate.wait;
    const controller = new AbortController();
    const call = sendToolCall(other, tool, args, { signal: controller.signal });
    const rejected = assert.rejects(call.then((response) => response.text()));
    await gate.begun;
    controller.abort(new Error('enough'));
    await rejected;
    gate.open();
    await waitFor(`the end of what ${tool} made`, async () => {
      const live = (await other.call('GET', '/v1/runs')).body as { id: string }[];
      return live.length === 1 && live[0]?.id === sandboxId;
    });
  }
  const states = (await listStates('copied', other)).toSorted();
  assert.deepEqual(states, ['destroyed', 'destroyed', 'destroyed', 'destroyed', 'running']);
});

test('a sandbox of which the caller learns stays', async () => {
  await using other = await startHarness();
  for (const revision of REVISIONS) {
    const { value } = await callTool(other, 'create_sandbox', { timeout: 0 }, { revision });
    await new Promise((resolve) => setTimeout(resolve, 200));
    const record = await other.call('GET', `/v1/runs/${String(value['sandboxId'])}`);
    assert.equal(record.body.status, 'running');
  }
});
