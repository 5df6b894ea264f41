import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { AccountClient, PASSWORD } from '../../testing/requests/account-client.ts';
import {
  API_KEY,
  INVITATION,
  startHarness,
  startHarnessWith,
  type ControlHarness,
} from '../../testing/control-harness.ts';

let harness: ControlHarness;
let owner: AccountClient;
before(async () => {
  harness = await startHarness();
  owner = await AccountClient.signUp(harness, { invitation: INVITATION, email: 'Owner@Example.test' });
});
after(() => harness[Symbol.asyncDispose]());

const signIn = (email: string, password: string) =>
  harness.call('POST', '/account/sign-in', {
    apiKey: null,
    headers: { origin: harness.control?.address ?? '' },
    body: { email, password },
  });

test('an invitation creates an account, a session and a membership', async () => {
  const { body } = await owner.call('GET', '/account/me');
  assert.equal(body.user.email, 'owner@example.test');
  const [organization] = body.organizations;
  assert.deepEqual(
    [organization.name, organization.role, organization.region, organization.teams[0].name],
    ['default', 'owner', 'us', 'default'],
  );
});

test('an invitation is valid once, for the invited address, until it expires or is revoked', async () => {
  const signUp = (invitation: string, email: string) =>
    new AccountClient(harness).call('POST', '/account/sign-up', {
      email,
      name: 'x',
      password: PASSWORD,
      invitation,
    });
  const again = await signUp(INVITATION, 'again@example.test');
  assert.match(again.body.error.message, /^invitation: cannot be used: it was accepted before/);
  const invite = async (body: object) =>
    (await owner.call('POST', `${owner.organization}/invitations`, body)).body;
  const { invitation } = await invite({ email: 'right@example.test' });
  assert.match((await signUp(invitation, 'wrong@example.test')).body.error.message, /another e-mail address/);
  const revoked = await invite({});
  assert.equal((await owner.call('GET', `${owner.organization}/invitations`)).body.length, 2);
  await owner.call('DELETE', `${owner.organization}/invitations/${revoked.id}`);
  assert.match((await signUp(revoked.invitation, 'late@example.test')).body.error.message, /was revoked/);
  assert.equal((await signUp(invitation, 'RIGHT@example.test')).status, 201);
  await using db = harness.openDatabase();
  const old = await invite({});
  await db.updateTable('invitations').set({ expires_at: 1 }).where('id', '=', old.id).execute();
  assert.match((await signUp(old.invitation, 'late@example.test')).body.error.message, /it has expired/);
});

test('sign-up requires an invitation unless the service is open', async () => {
  const person = { email: 'new@example.test', name: 'New', password: PASSWORD, organization: 'New Ones' };
  const refused = await new AccountClient(harness).call('POST', '/account/sign-up', person);
  assert.deepEqual([refused.status, refused.body.error.code], [400, 'invalid_request']);
  await using open = await startHarnessWith({ signUp: 'open' });
  const client = await AccountClient.signUp(open, { organization: 'New Ones' });
  const { body } = await client.call('GET', '/account/me');
  assert.deepEqual(
    body.organizations.map(({ name, role }: { name: string; role: string }) => [name, role]),
    [['New Ones', 'owner']],
  );
  const twin = await AccountClient.signUp(open, { organization: 'New Ones' });
  assert.notEqual(twin.organizationId, client.organizationId);
});

test('a password has 10 to 256 characters and differs from the e-mail address', async () => {
  const { body } = await owner.call('POST', `${owner.organization}/invitations`);
  const signUp = async (password: string) =>
    (
      await new AccountClient(harness).call('POST', '/account/sign-up', {
        email: 'somebody@example.test',
        name: 'x',
        password,
        invitation: body.invitation,
      })
    ).body.error.message;
  assert.match(await signUp('123456789'), /^password: must have 10 to 256 characters/);
  assert.match(await signUp('x'.repeat(257)), /^password: must have 10 to 256/);
  assert.match(await signUp('Somebody@example.test'), /^password: must not be the e-mail address/);
});

test('an unknown address and a wrong password get the same answer after the same work', async () => {
  const unknown = await signIn('nobody@example.test', PASSWORD);
  const wrong = await signIn('owner@example.test', 'wrong password');
  for (const { status, body, headers } of [unknown, wrong]) {
    assert.equal(status, 401);
    assert.equal(body.error.message, 'the e-mail address or the password is wrong');
    assert.equal(headers.get('www-authenticate'), null);
    assert.equal(headers.get('cache-control'), 'no-store');
  }
  // CPU time, which other work on the host does not lengthen. Control runs in this process.
  const measureWork = async (email: string): Promise<number> => {
    const before = process.cpuUsage();
    await signIn(email, 'wrong password');
    const { user, system } = process.cpuUsage(before);
    return (user + system) / 1000;
  };
  let [known, none] = [Infinity, Infinity];
  for (let round = 0; round < 7; round += 1) {
    known = Math.min(known, await measureWork('owner@example.test'));
    none = Math.min(none, await measureWork('nobody@example.test'));
  }
  assert.ok(none > known / 2 && known > none / 2, `${known} ms and ${none} ms of a processor`);
});

test('guesses at a password get 429 after a while, for that account only', async () => {
  const { email } = await owner.invite('member');
  const statuses: number[] = [];
  for (let round = 0; round < 21; round += 1) statuses.push((await signIn(email, 'wrong password')).status);
  assert.deepEqual(statuses, [...Array<number>(20).fill(401), 429]);
  const refused = await signIn(email, PASSWORD);
  assert.equal(refused.status, 429);
  assert.ok(Number(refused.headers.get('retry-after')) > 800);
  assert.equal((await signIn('owner@example.test', PASSWORD)).status, 200);
});

test('the cookie is limited to the account routes and this site, and ends with the session', async () => {
  const answer = await signIn('owner@example.test', PASSWORD);
  const [cookie = ''] = answer.headers.getSetCookie();
  assert.match(
    cookie,
    /^coppice_session=[A-Za-z0-9_-]{43}; Path=\/account; HttpOnly; SameSite=Strict; Max-Age=12\d{5}$/,
  );
  const client = new AccountClient(harness);
  client.cookie = cookie.split(';', 1)[0] ?? '';
  const held = client.cookie;
  const out = await client.call('POST', '/account/sign-out');
  assert.equal(out.status, 204);
  assert.match(out.headers.getSetCookie()[0] ?? '', /^coppice_session=; .*Max-Age=0$/);
  client.cookie = held;
  assert.equal((await client.call('GET', '/account/me')).status, 401);
  await using db = harness.openDatabase();
  const stored = JSON.stringify(await db.selectFrom('login_sessions').selectAll().execute());
  assert.ok(!stored.includes(held.split('=')[1] ?? '-'));
});

test('changing the password requires the old one and ends all other sessions', async () => {
  const person = await owner.invite('member');
  const other = await AccountClient.signIn(harness, person.email);
  const change = (current_password: string) =>
    person.call('POST', '/account/password', { current_password, new_password: 'another good one' });
  assert.match((await change('wrong password')).body.error.message, /^current_password: is wrong/);
  assert.equal((await other.call('GET', '/account/me')).status, 200);
  assert.equal((await change(PASSWORD)).status, 204);
  assert.equal((await other.call('GET', '/account/me')).status, 401);
  assert.equal((await person.call('GET', '/account/me')).status, 200);
  assert.equal((await signIn(person.email, PASSWORD)).status, 401);
  assert.equal((await signIn(person.email, 'another good one')).status, 200);
});

test('people list and end their own sessions one by one, and no others', async () => {
  const person = await owner.invite('member');
  const other = await AccountClient.signIn(harness, person.email);
  const { body } = await person.call('GET', '/account/sessions');
  assert.equal(body.length, 2);
  assert.deepEqual(
    body.map(({ is_current }: { is_current: boolean }) => is_current),
    [false, true],
  );
  const [{ id }] = body;
  assert.equal((await owner.call('DELETE', `/account/sessions/${id}`)).status, 404);
  assert.equal((await person.call('DELETE', `/account/sessions/${id}`)).status, 204);
  assert.equal((await other.call('GET', '/account/me')).status, 401);
});

test('an expired session is rejected, and use extends a session up to its maximum age', async () => {
  const person = await owner.invite('member');
  await using db = harness.openDatabase();
  const set = (change: { expires_at?: number; created_at?: number; last_used_at?: number }) =>
    db.updateTable('login_sessions').set(change).where('user_id', '=', person.id).execute();
  const read = () =>
    db
      .selectFrom('login_sessions')
      .select('expires_at')
      .where('user_id', '=', person.id)
      .executeTakeFirstOrThrow();
  const day = 86_400_000;
  await set({ last_used_at: Date.now() - day, expires_at: Date.now() + day });
  const extended = await person.call('GET', '/account/me');
  assert.equal(extended.headers.getSetCookie().length, 1);
  assert.ok((await read()).expires_at > Date.now() + 13 * day);
  assert.equal((await person.call('GET', '/account/me')).headers.getSetCookie().length, 0);
  await set({ last_used_at: Date.now() - day, created_at: Date.now() - 89 * day });
  await person.call('GET', '/account/me');
  assert.ok((await read()).expires_at < Date.now() + 1.1 * day);
  await set({ expires_at: Date.now() - 1 });
  assert.equal((await person.call('GET', '/account/me')).status, 401);
});

test('changes requested by a page of another origin, or in a form that HTML forms can send, are refused', async () => {
  const ask = (headers: Record<string, string>) =>
    owner.call('PATCH', owner.organization, { name: 'default' }, { headers });
  assert.equal((await ask({})).status, 200);
  for (const origin of ['http://evil.test', 'null', `${harness.control?.address}0`, 'https://127.0.0.1'])
    assert.equal((await ask({ origin })).body.error.code, 'forbidden_origin', origin);
  const form = await owner.call('POST', '/account/sign-out', undefined, {
    body: undefined,
    raw: 'a=b',
    headers: { 'content-type': 'text/plain' },
  });
  assert.equal(form.body.error.message, 'Content-Type: must be application/json');
  const bare = await harness.call('POST', '/account/sign-in', { apiKey: null, body: {} });
  assert.match(bare.body.error.message, /^Origin: is missing; send it as browsers do, here "http:/);
});

test('an API key is rejected below /account, and a session below /v1', async () => {
  const headers = { cookie: owner.cookie };
  assert.equal((await harness.call('GET', '/account/me', { apiKey: API_KEY })).status, 401);
  assert.equal((await harness.call('GET', '/v1/runs', { apiKey: null, headers })).status, 401);
});

test('no password, token or invitation is in the log', () => {
  const log = harness.logLines.join('');
  for (const secret of [PASSWORD, INVITATION, owner.cookie.split('=')[1] ?? '-'])
    assert.ok(!log.includes(secret));
});
