import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { BudgetOptions } from './budgets.ts';
import { errorBody, LoopbackServer } from './testing/loopback-server.ts';

const WIRE = {
  scope: 'organization',
  month_cents: 50_000,
  alert_percents: [50, 100],
  month: '2026-11',
  cost_cents: 26_000.5,
  reached_percents: [50],
  updated_at: '2026-11-21T06:30:00.000Z',
};
const SHOWN = {
  scope: 'organization',
  monthCents: 50_000,
  alertPercents: [50, 100],
  month: '2026-11',
  costCents: 26_000.5,
  reachedPercents: [50],
  updatedAt: '2026-11-21T06:30:00.000Z',
};

test('a budget is set under its scope, with the fields of the wire', async () => {
  await using server = await LoopbackServer.answering(200, WIRE);
  const set = { monthCents: 50_000, alertPercents: [50, 100] };
  assert.deepEqual(await server.client().budgets.set('organization', set), SHOWN);
  assert.equal(`${server.last.method} ${server.last.url}`, 'PUT /v1/budgets/organization');
  assert.deepEqual(server.lastJson, { month_cents: 50_000, alert_percents: [50, 100] });
  await server.client().budgets.set('team/1', { monthCents: 1 });
  assert.equal(server.last.url, '/v1/budgets/team%2F1');
  assert.deepEqual(server.lastJson, { month_cents: 1 });
});

test('budgets are listed with fields in camelCase', async () => {
  await using server = await LoopbackServer.answering(200, [WIRE]);
  assert.deepEqual(await server.client().budgets.list(), [SHOWN]);
  assert.equal(`${server.last.method} ${server.last.url}`, 'GET /v1/budgets');
});

test('delete returns nothing, and a budget that does not exist is an error with the service’s code', async () => {
  await using server = await LoopbackServer.start((_, response) => {
    response.writeHead(204).end();
  });
  assert.equal(await server.client().budgets.delete('organization'), undefined);
  assert.equal(`${server.last.method} ${server.last.url}`, 'DELETE /v1/budgets/organization');
  await using empty = await LoopbackServer.answering(404, errorBody('not_found', 'there is none'));
  await assert.rejects(empty.client().budgets.delete('organization'), { code: 'not_found' });
});

test('a misspelt field and an empty scope are refused before a request is sent', async () => {
  await using server = await LoopbackServer.answering(200, WIRE);
  const misspelt = { monthlyCents: 1 } as unknown as BudgetOptions;
  await assert.rejects(server.client().budgets.set('organization', misspelt), TypeError);
  await assert.rejects(server.client().budgets.set('', { monthCents: 1 }), TypeError);
  assert.equal(server.seen.length, 0);
});
