/** API keys of sessions: a signed-in person's calls below /v1. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request as sendRequest, type IncomingMessage } from 'node:http';
import { after, before, test } from 'node:test';
import type { SandboxRecord, SessionKey } from '@coppice/contract';
import { sql } from 'kysely';
import { hashApiKey } from '../auth/hash-api-key.ts';
import { rotateMasterKey } from '../operator/rotate-master-key.ts';
import { INVITATION, startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import { readOrganizationLog, verifyOrganizationLog } from '../testing/organization-log.ts';
import { AccountClient, PASSWORD } from '../testing/requests/account-client.ts';
import { EventsClient } from '../testing/requests/events-client.ts';
import { SocketClient } from '../testing/requests/socket-client.ts';

const DAY_MS = 86_400_000;
const IMAGE = 'node:22-slim';

let harness: ControlHarness;
let owner: AccountClient;
/** Path of a second team of the organization. */
let others = '';
before(async () => {
  harness = await startHarness();
  owner = await AccountClient.signUp(harness, { invitation: INVITATION });
  const { body } = await owner.call('POST', `${owner.organization}/teams`, { name: 'others' });
  others = `${owner.organization}/teams/${body.id}`;
});
after(() => harness[Symbol.asyncDispose]());

async function keyOf(person: AccountClient, team = person.team): Promise<SessionKey> {
  const { status, body } = await person.call('POST', `${team}/session-key`);
  assert.equal(status, 200, JSON.stringify(body));
  return body;
}

/** Signs up a member of the organization's first team. */
async function addMember(): Promise<AccountClient> {
  const person = await owner.invite('member');
  assert.equal((await owner.call('PUT', `${owner.team}/members/${person.id}`)).status, 204);
  return person;
}

const setRole = (person: AccountClient, role: 'owner' | 'member') =>
  owner.call('PATCH', `${owner.organization}/members/${person.id}`, { role });
const statusOf = async (apiKey: string, path = '/v1/runs') =>
  (await harness.call('GET', path, { apiKey })).status;
const create = async (apiKey: string): Promise<SandboxRecord> =>
  (await harness.call('POST', '/v1/runs', { apiKey, body: { image: IMAGE } })).body;

async function openEvents(apiKey: string): Promise<EventsClient> {
  const stream = new EventsClient(harness, '', { apiKey });
  await stream.wait('the position', ({ type }) => type === 'position');
  return stream;
}

/** Waits until a stream has ended, and returns its last frame. */
async function endOf(stream: EventsClient): Promise<string> {
  await waitFor('the end of the stream', () => stream.isOver);
  return JSON.stringify(stream.frames.at(-1));
}

/** Creates a sandbox with a preview link. The function opens the link, and returns the status and the text. */
async function startPreview(
  apiKey: string,
): Promise<() => Promise<{ status: number | undefined; text: string }>> {
  const { id } = await create(apiKey);
  const { body } = await harness.call('POST', `/v1/runs/${id}/ports/80/preview`, { apiKey, body: {} });
  const { pathname, search, host } = new URL(body.url);
  return async () => {
    const { hostname, port } = new URL(harness.address);
    const sent = sendRequest({ hostname, port, path: pathname + search, headers: { host } });
    sent.end();
    const [answer] = (await once(sent, 'response')) as [IncomingMessage];
    let text = '';
    for await (const chunk of answer) text += String(chunk);
    return { status: answer.statusCode, text };
  };
}

test('a session has one key for each team, which is the same each time and stored only as a hash', async () => {
  const first = await owner.call('POST', `${owner.team}/session-key`);
  assert.equal(first.headers.get('cache-control'), 'no-store');
  const { id, key, team_id, expires_at } = first.body as SessionKey;
  assert.match(key, /^cop_live_us_[A-Za-z0-9]{40}$/u);
  assert.equal(team_id, owner.teamId);
  assert.ok(Date.parse(expires_at) > Date.now() + 13 * DAY_MS);
  assert.deepEqual(await keyOf(owner), first.body);
  const again = await AccountClient.signIn(harness, owner.email);
  Object.assign(again, { organizationId: owner.organizationId, teamId: owner.teamId });
  const keys = new Set([key, (await keyOf(owner, others)).key, (await keyOf(again)).key]);
  assert.equal(keys.size, 3);
  for (const each of keys) assert.equal(await statusOf(each), 200);
  await using db = harness.openDatabase();
  const row = await db.selectFrom('api_keys').selectAll().where('id', '=', id).executeTakeFirstOrThrow();
  assert.deepEqual(row.sha256, hashApiKey(key));
  assert.ok(!JSON.stringify(row).includes(key));
  assert.ok(!harness.logLines.join('').includes(key));
});

test('tabs that ask at the same time get the same key', async () => {
  const person = await addMember();
  const made = await Promise.all(Array.from({ length: 8 }, () => keyOf(person)));
  assert.deepEqual(new Set(made.map(({ key }) => key)).size, 1);
  assert.deepEqual(new Set(made.map(({ id }) => id)).size, 1);
});

test("an owner's key sees all teams, a member's key the own team", async () => {
  const [own, foreign] = [await keyOf(owner), await keyOf(owner, others)];
  const ofTeam = await create(own.key);
  const ofOthers = await create(foreign.key);
  assert.deepEqual([ofTeam.team_id, ofOthers.team_id], [owner.teamId, foreign.team_id]);
  assert.equal(await statusOf(own.key, `/v1/runs/${ofOthers.id}`), 200);
  assert.equal(own.team_only, false);
  const member = await keyOf(await addMember());
  assert.equal(member.team_only, true);
  assert.equal(await statusOf(member.key, `/v1/runs/${ofTeam.id}`), 200);
  assert.equal(await statusOf(member.key, `/v1/runs/${ofOthers.id}`), 404);
  assert.equal((await create(member.key)).team_id, owner.teamId);
  assert.equal(await statusOf(own.key, '/v1/organization/audit?head=true'), 200);
  assert.equal(await statusOf(member.key, '/v1/organization/audit?head=true'), 403);
});

test('a change of the role changes at once what the key sees, and a stream that sees too much ends', async () => {
  const person = await addMember();
  const { id } = await create((await keyOf(owner, others)).key);
  const { key } = await keyOf(person);
  await using narrow = await openEvents(key);
  await setRole(person, 'owner');
  assert.equal(await statusOf(key, `/v1/runs/${id}`), 200);
  await using wide = await openEvents(key);
  await setRole(person, 'member');
  assert.equal(await statusOf(key, `/v1/runs/${id}`), 404);
  assert.match(await endOf(wide), /unauthorized.*no longer sees all teams/u);
  assert.equal(narrow.isOver, false);
  assert.equal((await keyOf(person)).team_only, true);
});

test('signing out ends the key, its streams, tickets, links and previews', async () => {
  const person = await addMember();
  const { key } = await keyOf(person);
  const { id } = await create(key);
  const post = async (path: string, body: object) =>
    (await harness.call('POST', `/v1/runs/${id}/${path}`, { apiKey: key, body })).body;
  const { ticket } = await post('tickets', {});
  const link = (await post('files/links', { path: '/a', method: 'download' })).url as string;
  const openPreview = await startPreview(key);
  assert.equal((await openPreview()).status, 303);
  await using stream = await openEvents(key);
  assert.equal((await person.call('POST', '/account/sign-out')).status, 204);
  assert.equal(await statusOf(key), 401);
  assert.match(await endOf(stream), /unauthorized/u);
  await assert.rejects(
    new SocketClient(harness, `/v1/runs/${id}/shell?ticket=${ticket}`, { key: null }).closed,
    /401/u,
  );
  assert.equal((await fetch(link)).status, 401);
  assert.equal((await openPreview()).status, 401);
});

test('a person who leaves the team or the organization loses the key, and gets it back with the membership', async () => {
  const person = await addMember();
  const { key } = await keyOf(person);
  const openPreview = await startPreview(key);
  const membership = `${owner.team}/members/${person.id}`;
  assert.equal((await owner.call('DELETE', membership)).status, 204);
  assert.equal(await statusOf(key), 401);
  assert.equal((await person.call('POST', `${owner.team}/session-key`)).status, 403);
  assert.match((await openPreview()).text, /its API key is revoked or has expired/u);
  await owner.call('PUT', membership);
  assert.equal(await statusOf(key), 200);
  assert.equal((await openPreview()).status, 303);
  assert.equal((await keyOf(person)).key, key);
  assert.equal((await owner.call('DELETE', `${owner.organization}/members/${person.id}`)).status, 204);
  assert.equal(await statusOf(key), 401);
  assert.equal((await person.call('POST', `${owner.team}/session-key`)).status, 404);
});

test('the key ends with the session: ended from elsewhere, by a new password, or expired', async () => {
  const person = await addMember();
  const begin = async () => {
    const client = await AccountClient.signIn(harness, person.email);
    Object.assign(client, { organizationId: owner.organizationId, teamId: owner.teamId });
    return { client, key: (await keyOf(client)).key };
  };
  const { key } = await keyOf(person);
  const ended = await begin();
  const sessions = (await ended.client.call('GET', '/account/sessions')).body;
  const { id } = sessions.find(({ is_current }: { is_current: boolean }) => is_current);
  assert.equal((await person.call('DELETE', `/account/sessions/${id}`)).status, 204);
  assert.equal(await statusOf(ended.key), 401);

  const other = await begin();
  const change = { current_password: PASSWORD, new_password: 'another good one' };
  assert.equal((await person.call('POST', '/account/password', change)).status, 204);
  assert.deepEqual([await statusOf(other.key), await statusOf(key)], [401, 200]);

  await using stream = await openEvents(key);
  await using db = harness.openDatabase();
  await db
    .updateTable('login_sessions')
    .set({ expires_at: Date.now() - 1 })
    .where('user_id', '=', person.id)
    .execute();
  assert.equal(await statusOf(key), 401);
  assert.match(await endOf(stream), /unauthorized/u);
});

test('the key is not among those of the team: not listed, rotated, revoked or counted', async () => {
  const { id, key } = await keyOf(owner);
  const keys = `${owner.team}/keys`;
  const listed = (await owner.call('GET', keys)).body as { id: string }[];
  assert.ok(listed.length > 0 && listed.every((record) => record.id !== id));
  assert.equal((await owner.call('DELETE', `${keys}/${id}`)).status, 404);
  assert.equal((await owner.call('POST', `${keys}/${id}/rotate`)).status, 404);
  assert.equal(await statusOf(key), 200);
  await using db = harness.openDatabase();
  await sql`
    INSERT INTO api_keys (id, organization_id, team_id, sha256, last4, created_at, session_id)
    SELECT 'keymany' || number, organization_id, team_id, sha256(number::text::bytea), '', created_at, session_id
    FROM api_keys, generate_series(1, 200) AS number WHERE id = ${id}`.execute(db);
  assert.equal((await owner.call('POST', keys, { name: 'one more' })).status, 201);
});

test('only people in the team or owners get a key, from a page of the service', async () => {
  const person = await addMember();
  const path = `${person.team}/session-key`;
  assert.equal((await person.call('POST', `${others}/session-key`)).status, 403);
  const stranger = await owner.addOrganization('strangers');
  assert.equal((await person.call('POST', `${stranger.team}/session-key`)).status, 404);
  const mixed = `${stranger.organization}/teams/${owner.teamId}/session-key`;
  assert.equal((await stranger.call('POST', mixed)).status, 404);
  assert.equal((await person.call('POST', path, { team_only: false })).status, 400);
  const from = (headers: Record<string, string>) =>
    harness.call('POST', path, { apiKey: null, body: {}, headers: { cookie: person.cookie, ...headers } });
  for (const headers of [{}, { origin: 'https://evil.example' }]) {
    const { status, body } = await from(headers);
    assert.deepEqual([status, body.error.code], [403, 'forbidden_origin']);
  }
  const { key } = await keyOf(person);
  const byKey = await harness.call('POST', path, {
    apiKey: key,
    body: {},
    headers: { origin: harness.address },
  });
  assert.equal(byKey.status, 401);
});

test("the organization's log names the person, and the key", async () => {
  const person = await owner.invite('owner');
  const { id, key } = await keyOf(person);
  const put = await harness.call('PUT', '/v1/secrets/by-a-person', { apiKey: key, body: { value: 'v' } });
  assert.equal(put.status, 200);
  const [stored] = await readOrganizationLog(harness, { query: '?event=secret.stored' });
  assert.deepEqual(stored?.actor, { type: 'user', id: person.id, address: '127.0.0.1', session_key: id });
  const entries = await verifyOrganizationLog(harness);
  assert.ok(!JSON.stringify(entries).includes(key));
});

test('use of the key extends the session, and leaves the renewal of the cookie to the cookie', async () => {
  await using own = await startHarness();
  const person = await AccountClient.signUp(own, { invitation: INVITATION });
  const { key } = await keyOf(person);
  const db = own.openDatabase();
  const set = (change: object) => db.updateTable('login_sessions').set(change).execute();
  const expiry = async () =>
    (await db.selectFrom('login_sessions').select('expires_at').executeTakeFirstOrThrow()).expires_at;
  /** A control that stops writes the uses of keys. */
  const use = async () => {
    assert.equal((await own.call('GET', '/v1/runs', { apiKey: key })).status, 200);
    await own.stopControl();
    await own.startControl();
  };
  await set({ expires_at: Date.now() + DAY_MS, last_used_at: Date.now() - DAY_MS });
  await use();
  assert.ok((await expiry()) > Date.now() + 13 * DAY_MS);
  const sessions = await person.call('GET', '/account/sessions');
  assert.equal(sessions.headers.getSetCookie().length, 1);
  await set({ last_used_at: Date.now() - DAY_MS });
  await set({ expires_at: Date.now() + DAY_MS / 2, created_at: Date.now() - 89 * DAY_MS });
  await use();
  const left = (await expiry()) - Date.now();
  assert.ok(left > 0.9 * DAY_MS && left <= DAY_MS, `${left} ms`);
  await db.destroy();
});

test('after a rotation of the master key a session has another key, and the one before stays', async () => {
  await using own = await startHarness();
  const person = await AccountClient.signUp(own, { invitation: INVITATION });
  const old = await keyOf(person);
  await own.stopControl();
  await rotateMasterKey(own.config, own.log);
  await own.startControl();
  const next = await keyOf(person);
  assert.notEqual(next.key, old.key);
  const use = async ({ key }: SessionKey) => (await own.call('GET', '/v1/runs', { apiKey: key })).status;
  assert.deepEqual([await use(old), await use(next)], [200, 200]);
  assert.equal((await person.call('POST', '/account/sign-out')).status, 204);
  assert.deepEqual([await use(old), await use(next)], [401, 401]);
});
