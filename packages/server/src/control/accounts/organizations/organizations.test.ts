import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { AccountClient } from '../../testing/requests/account-client.ts';
import { INVITATION, startHarness, type ControlHarness } from '../../testing/control-harness.ts';

let harness: ControlHarness;
let owner: AccountClient;
before(async () => {
  harness = await startHarness();
  owner = await AccountClient.signUp(harness, { invitation: INVITATION });
});
after(() => harness[Symbol.asyncDispose]());

test('only owners of the first organization create others, not its members or the owners of others', async () => {
  const made = await owner.addOrganization('Second');
  assert.equal((await made.call('GET', made.organization)).body.role, 'owner');
  const member = await owner.invite('member');
  const other = await made.invite('owner');
  for (const client of [member, other]) {
    const refused = await client.call('POST', '/account/organizations', { name: 'Third' });
    assert.deepEqual([refused.status, refused.body.error.code], [403, 'forbidden']);
  }
});

test('two organizations may have the same name', async () => {
  const [first, second] = [await owner.addOrganization('Twins'), await owner.addOrganization('Twins')];
  assert.notEqual(first.organizationId, second.organizationId);
  const renamed = await first.call('PATCH', first.organization, { name: 'Only Child' });
  assert.equal(renamed.body.name, 'Only Child');
});

test('the first organization stays the first after a rename', async () => {
  await using other = await startHarness();
  const client = await AccountClient.signUp(other, { invitation: INVITATION });
  await client.call('PATCH', client.organization, { name: 'Renamed' });
  await other.stopControl();
  await other.startControl();
  const { body } = await client.call('GET', '/account/me');
  assert.equal(body.organizations[0].name, 'Renamed');
  assert.equal((await other.call('GET', '/v1/runs')).status, 200);
  await using db = other.openDatabase();
  assert.equal((await db.selectFrom('organizations').select('id').execute()).length, 1);
});

test('an organization never loses its last owner, even if two leave at once', async () => {
  const first = await owner.addOrganization('Owned');
  const leave = (client: AccountClient) =>
    client.call('DELETE', `${client.organization}/members/${client.id}`);
  const last = await leave(first);
  assert.deepEqual([last.status, last.body.error.code], [409, 'invalid_state']);
  const demoted = await first.call('PATCH', `${first.organization}/members/${first.id}`, { role: 'member' });
  assert.equal(demoted.status, 409);
  const second = await first.invite('owner');
  const both = await Promise.all([leave(first), leave(second)]);
  assert.deepEqual(
    both.map(({ status }) => status).toSorted((a, b) => a - b),
    [204, 409],
  );
});

test('members may not do what owners may, but see all members and teams', async () => {
  const boss = await owner.addOrganization('Ranks');
  const member = await boss.invite('member');
  const { organization, team } = boss;
  const seen = await member.call('GET', `${organization}/members`);
  assert.deepEqual(
    seen.body.map(({ role }: { role: string }) => role),
    ['owner', 'member'],
  );
  assert.equal((await member.call('GET', `${organization}/teams`)).body.length, 1);
  const refused: [string, string, object?][] = [
    ['PATCH', organization, { name: 'Mine' }],
    ['PATCH', `${organization}/members/${member.id}`, { role: 'owner' }],
    ['DELETE', `${organization}/members/${boss.id}`],
    ['POST', `${organization}/invitations`],
    ['GET', `${organization}/invitations`],
    ['POST', `${organization}/teams`, { name: 'x' }],
    ['PATCH', team, { name: 'x' }],
    ['PUT', `${team}/members/${member.id}`],
    ['GET', `${team}/keys`],
    ['POST', `${team}/keys`, { name: 'x' }],
    ['GET', `${team}/audit-secrets`],
    ['POST', `${team}/audit-secrets`],
  ];
  for (const [method, path, body] of refused) {
    const answer = await member.call(method, path, body);
    assert.deepEqual([answer.status, answer.body.error.code], [403, 'forbidden'], `${method} ${path}`);
  }
  const left = await member.call('DELETE', `${organization}/members/${member.id}`);
  assert.equal(left.status, 204);
  assert.equal((await member.call('GET', organization)).status, 404);
});

test('a member of a team manages its keys until leaving the organization', async () => {
  const boss = await owner.addOrganization('Teams');
  const member = await boss.invite('member');
  const created = await boss.call('POST', `${boss.organization}/teams`, { name: 'Builders' });
  const team = `${boss.organization}/teams/${created.body.id}`;
  assert.equal((await boss.call('PUT', `${team}/members/${member.id}`)).status, 204);
  assert.equal((await boss.call('PUT', `${team}/members/${member.id}`)).status, 204);
  const { body } = await boss.call('GET', `${team}/members`);
  assert.deepEqual(
    body.map(({ email }: { email: string }) => email),
    [member.email],
  );
  assert.equal((await member.call('POST', `${team}/keys`, { name: 'ci' })).status, 201);
  assert.equal((await member.call('GET', `${team}/audit-secrets`)).status, 200);
  const account = await member.call('GET', '/account/me');
  assert.deepEqual(account.body.organizations[0].teams, [{ id: created.body.id, name: 'Builders' }]);
  await boss.call('DELETE', `${boss.organization}/members/${member.id}`);
  assert.equal((await member.call('POST', `${team}/keys`, { name: 'ci' })).status, 404);
  assert.deepEqual((await boss.call('GET', `${team}/members`)).body, []);
});

test('a team’s name is unique in its organization, and only the organization’s members can join it', async () => {
  const boss = await owner.addOrganization('Names');
  await boss.call('POST', `${boss.organization}/teams`, { name: 'Builders' });
  const again = await boss.call('POST', `${boss.organization}/teams`, { name: 'Builders' });
  assert.deepEqual([again.status, again.body.error.code], [409, 'already_exists']);
  assert.equal((await boss.call('PATCH', boss.team, { name: 'Builders' })).status, 409);
  assert.equal((await boss.call('PATCH', boss.team, { name: 'First' })).body.name, 'First');
  const stranger = await owner.invite('member');
  assert.equal((await boss.call('PUT', `${boss.team}/members/${stranger.id}`)).status, 404);
});

test('a person with an account accepts an invitation once', async () => {
  const boss = await owner.addOrganization('Joined');
  const person = await owner.invite('member');
  const invite = async () =>
    (await boss.call('POST', `${boss.organization}/invitations`, { email: person.email })).body.invitation;
  const joined = await person.call('POST', '/account/invitations/accept', { invitation: await invite() });
  assert.deepEqual(
    joined.body.organizations.map(({ name }: { name: string }) => name),
    ['default', 'Joined'],
  );
  const again = await person.call('POST', '/account/invitations/accept', { invitation: await invite() });
  assert.deepEqual([again.status, again.body.error.code], [409, 'already_exists']);
});

test('an owner sees and rotates the secret of a team, by its id', async () => {
  const boss = await owner.addOrganization('Secrets');
  const first = await boss.call('POST', `${boss.team}/audit-secrets`);
  const second = await boss.call('POST', `${boss.team}/audit-secrets`);
  assert.match(first.body.secret, /^cts_[A-Za-z0-9_-]{43}$/);
  const listed = await boss.call('GET', `${boss.team}/audit-secrets`);
  assert.deepEqual(
    listed.body.map(({ id }: { id: string }) => id),
    [second.body.id, first.body.id],
  );
  assert.ok(!JSON.stringify(listed.body).includes('cts_'));
  const shown = await boss.call('GET', `${boss.team}/audit-secrets/${first.body.id}`);
  assert.deepEqual(shown.body, first.body);
  const elsewhere = await owner.call('GET', `${owner.team}/audit-secrets/${first.body.id}`);
  assert.equal(elsewhere.status, 404);
});
