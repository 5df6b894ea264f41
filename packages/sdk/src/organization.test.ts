import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { test } from 'node:test';
import { parseOrganizationAuditLine } from './audit/organization-audit-entry.ts';
import { verifyOrganizationAudit } from './audit/verify-organization-audit.ts';
import { errorBody, LoopbackServer } from './testing/loopback-server.ts';
import { canonicalize } from './transport/canonical-json.ts';

const SECRETS = { ask1: 'cos_first', ask2: 'cos_second' };

/** Builds a log as docs/reference/audit.md describes it; the last entry is keyed by the second secret. */
function buildLines(): string[] {
  let previous = 'coppice-organization-audit-v1:org1';
  return [1, 2, 3].map((seq) => {
    const audit_key_id = seq === 3 ? 'ask2' : 'ask1';
    const entry = {
      seq,
      ts: '2026-11-22T06:30:00.000Z',
      organization_id: 'org1',
      audit_key_id,
      event: 'team.created',
      actor: { type: 'user', id: 'user1', address: '203.0.113.7' },
      data: { team_id: `team${seq}`, name: 'é' },
    };
    const text = `${previous}\n${canonicalize(entry)}`;
    previous = `sha256:${createHmac('sha256', SECRETS[audit_key_id]).update(text).digest('hex')}`;
    return JSON.stringify({ ...entry, hmac: previous });
  });
}

test('the log is read line by line, with its filters', async () => {
  await using server = await LoopbackServer.start((_, response) => {
    response.writeHead(200, { 'content-type': 'application/x-ndjson' });
    response.end(`${buildLines().join('\n')}\n`);
  });
  const { organization } = server.client();
  const entries = [];
  for await (const entry of organization.audit({ after: 3, event: 'team.created', actor: 'user1' }))
    entries.push(entry);
  assert.deepEqual(entries, buildLines().map(parseOrganizationAuditLine));
  assert.equal(server.last.url, '/v1/organization/audit?after=3&event=team.created&actor=user1');
});

test('the head is read, and a refusal has the service’s code', async () => {
  const head = { seq: 3, hmac: `sha256:${'0'.repeat(64)}` };
  await using server = await LoopbackServer.answering(200, head);
  assert.deepEqual(await server.client().organization.auditHead(), head);
  assert.equal(server.last.url, '/v1/organization/audit?head=true');
  await using refusing = await LoopbackServer.answering(403, errorBody('forbidden', 'scope'));
  await assert.rejects(refusing.client().organization.auditHead(), { code: 'forbidden' });
});

test('a line that is not an entry, or has another field, is an error', async () => {
  await using server = await LoopbackServer.start((_, response) => {
    response.end('{"seq":1}\n');
  });
  await assert.rejects(server.client().organization.audit().next(), { code: 'invalid_response' });
  const [line = ''] = buildLines();
  assert.throws(() => parseOrganizationAuditLine(line.replace('{"seq"', '{"x":1,"seq"')), /no field "x"/u);
});

test('a log is verified over a rotation of its secret, and only with both secrets', async () => {
  const entries = buildLines().map(parseOrganizationAuditLine);
  const head = { seq: 3, hmac: entries[2]?.hmac ?? null };
  assert.deepEqual(await verifyOrganizationAudit(entries, SECRETS, { head }), {
    valid: true,
    entries: 3,
    complete: true,
  });
  const problemOf = async (...given: Parameters<typeof verifyOrganizationAudit>): Promise<string> => {
    const verdict = await verifyOrganizationAudit(...given);
    return verdict.valid ? `valid ${verdict.complete}` : `${verdict.problem} ${verdict.seq}`;
  };
  assert.equal(await problemOf(entries, SECRETS), 'valid false');
  assert.equal(await problemOf(entries, { ask1: SECRETS.ask1 }), 'unknown_secret 3');
  assert.equal(await problemOf(entries, { ask1: SECRETS.ask2, ask2: SECRETS.ask2 }), 'altered 1');
  assert.equal(await problemOf(entries, SECRETS, { organizationId: 'org2' }), 'other_organization 1');
  assert.equal(await problemOf(entries.slice(0, 2), SECRETS, { head }), 'missing 3');
  await assert.rejects(verifyOrganizationAudit(entries, { ask1: '' }), TypeError);
});
