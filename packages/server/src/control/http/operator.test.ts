/** Calls of the operator: only for owners of the first organization. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { AccountRecord, OperatedOrganization } from '@coppice/contract';
import {
  INVITATION,
  startHarness,
  startHarnessWith,
  type ControlHarness,
} from '../testing/control-harness.ts';
import { readOrganizationLog } from '../testing/organization-log.ts';
import { AccountClient } from '../testing/requests/account-client.ts';

const PATH = '/account/operator';

let harness: ControlHarness;
let operator: AccountClient;
before(async () => {
  harness = await startHarness();
  operator = await AccountClient.signUp(harness, { invitation: INVITATION });
});
after(() => harness[Symbol.asyncDispose]());

async function list(query = ''): Promise<OperatedOrganization[]> {
  const { status, body } = await operator.call('GET', `${PATH}/organizations${query}`);
  assert.equal(status, 200, JSON.stringify(body));
  return body as OperatedOrganization[];
}

/** Returns a key of an organization that the operator owns. */
async function makeKey(organizationId: string): Promise<string> {
  const { body } = await operator.call('GET', '/account/me');
  const organization = (body as AccountRecord).organizations.find(({ id }) => id === organizationId);
  const team = `/account/organizations/${organizationId}/teams/${organization?.teams[0]?.id}`;
  return (await operator.call('POST', `${team}/keys`, { name: 'log' })).body.key;
}

test('owners of other organizations, members and programs see nothing of it', async () => {
  const member = await operator.invite('member');
  const made = await operator.call('POST', '/account/organizations', { name: 'tenant' });
  const path = `/account/organizations/${made.body.id}`;
  const { body } = await operator.call('POST', `${path}/invitations`, { role: 'owner' });
  const tenant = await AccountClient.signUp(harness, { invitation: body.invitation });
  for (const person of [member, tenant]) {
    for (const [method, url, content] of [
      ['GET', `${PATH}/host`],
      ['GET', `${PATH}/organizations`],
      ['PATCH', `${PATH}/organizations/${made.body.id}/limits`, { vcpus: 1000 }],
      ['POST', `${PATH}/organizations/${made.body.id}/credit`, { cents: 100 }],
    ] as const)
      assert.equal((await person.call(method, url, content)).status, 403, url);
    assert.equal((await person.call('GET', '/account/me')).body.is_operator, false);
  }
  assert.equal((await operator.call('GET', '/account/me')).body.is_operator, true);
  assert.equal((await harness.call('GET', `${PATH}/host`)).status, 401);
});

test('the host shows its health, and what its runner has promised', async () => {
  const { id } = await harness.create({ timeout: 0 });
  const { status, body } = await operator.call('GET', `${PATH}/host`);
  assert.equal(status, 200);
  assert.deepEqual([body.serves, body.fault, body.region], [true, null, 'us']);
  const [control, ...otherControls] = body.controls;
  const [runner, ...others] = body.runners;
  assert.deepEqual([otherControls, others], [[], []]);
  assert.deepEqual([control.leading, control.answers, control.runners], [true, true, 1]);
  assert.deepEqual([runner.id, runner.control, runner.state], [harness.runner.id, control.id, 'connected']);
  assert.deepEqual([runner.address, runner.cordoned, runner.draining], [null, false, false]);
  assert.ok(runner.heard_seconds_ago < 60);
  assert.ok(runner.measured.vcpus.limit > 0 && runner.measured.mem_mib.limit > 0);
  await harness.call('DELETE', `/v1/runs/${id}`);
});

test('organizations are listed in pages, with cost and limits', async () => {
  for (const name of ['one', 'two']) await operator.call('POST', '/account/organizations', { name });
  const all = await list();
  const paged: string[] = [];
  let path: string | undefined = `${PATH}/organizations?limit=1`;
  while (path !== undefined) {
    const { body, headers } = await operator.call('GET', path);
    paged.push(...(body as OperatedOrganization[]).map(({ id }) => id));
    path = /<([^>]+)>/u.exec(headers.get('link') ?? '')?.[1];
  }
  assert.deepEqual(
    paged,
    all.map(({ id }) => id),
  );
  assert.ok(all.length >= 3 && all.every(({ limits }) => limits.vcpus === null));
});

test('limits and credit change, and the log of the organization shows it without the person', async () => {
  const made = await operator.call('POST', '/account/organizations', { name: 'limited' });
  const { id } = made.body;
  const url = `${PATH}/organizations/${id}`;
  assert.equal((await operator.call('PATCH', `${url}/limits`, { sandboxes: 3, vcpus: 0 })).status, 204);
  assert.equal((await operator.call('PATCH', `${url}/limits`, { vcpus: null })).status, 204);
  assert.equal(
    (await operator.call('POST', `${url}/credit`, { cents: 250, note: 'invoice 17' })).status,
    204,
  );
  const found = (await list()).find((organization) => organization.id === id);
  assert.deepEqual([found?.limits.sandboxes, found?.limits.vcpus], [3, null]);
  const log = JSON.stringify(await readOrganizationLog(harness, { apiKey: await makeKey(id) }));
  assert.match(log, /"limits\.changed"/u);
  assert.match(log, /"credit\.granted"/u);
  assert.match(log, /"actor":\{"address":null,"id":null,"type":"operator"\}/u);
  assert.doesNotMatch(log, /invoice 17/u);
});

test('bad limits and amounts are refused with their field, and unknown organizations are not found', async () => {
  const [first] = await list();
  const url = `${PATH}/organizations/${first?.id}`;
  for (const [path, body, field] of [
    ['limits', {}, /must name at least one limit/u],
    ['limits', { vcpus: -1 }, /vcpus/u],
    ['limits', { rate_limit_burst: 0 }, /rate_limit_burst/u],
    ['limits', { unknown: 1 }, /unknown/u],
    ['credit', { cents: 0 }, /cents/u],
    ['credit', { cents: 1.5 }, /cents/u],
  ] as const) {
    const method = path === 'limits' ? 'PATCH' : 'POST';
    const answer = await operator.call(method, `${url}/${path}`, body);
    assert.equal(answer.status, 400, JSON.stringify(body));
    assert.match(answer.body.error.message, field);
  }
  const absent = await operator.call('PATCH', `${PATH}/organizations/orgabsent/limits`, { vcpus: 1 });
  assert.equal(absent.status, 404);
});

test('the first credit is listed before an organization has used anything', async () => {
  await using own = await startHarnessWith({ creditCents: 500 });
  const owner = await AccountClient.signUp(own, { invitation: INVITATION });
  const made = await owner.call('POST', '/account/organizations', { name: 'unused' });
  const credit = `${PATH}/organizations/${made.body.id}/credit`;
  assert.equal((await owner.call('POST', credit, { cents: 250 })).status, 204);
  const { body } = await owner.call('GET', `${PATH}/organizations`);
  const left = (body as OperatedOrganization[]).map((each) => [each.name, each.credit_left_cents]);
  assert.deepEqual(left, [
    ['default', 500],
    ['unused', 750],
  ]);
});
