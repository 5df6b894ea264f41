import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';

const COPPICE = fileURLToPath(new URL('../../bin/coppice.mjs', import.meta.url));
const SECRET = `cts_${'s'.repeat(43)}`;
const SANDBOX = 'run0123456789abcdef0123';
const directory = mkdtempSync(join(tmpdir(), 'cop-audit-'));
after(() => rmSync(directory, { recursive: true }));

/** Builds the log without code of the service. The names are already in canonical order. */
function buildLog() {
  let previous = `coppice-audit-v1:${SANDBOX}`;
  return ['sandbox.created', 'exec.start', 'exec.exit', 'sandbox.destroyed'].map((event, index) => {
    const data = { command: `é ${index}` };
    const ts = `2026-11-22T00:00:00.00${index}Z`;
    const text = JSON.stringify({ data, event, sandbox_id: SANDBOX, seq: index + 1, ts });
    const digest = createHmac('sha256', SECRET).update(`${previous}\n${text}`).digest('hex');
    previous = `sha256:${digest}`;
    return JSON.stringify({ seq: index + 1, ts, sandbox_id: SANDBOX, event, data, hmac: previous });
  });
}

const ORGANIZATION_SECRETS = { ask1: `cos_${'1'.repeat(43)}`, ask2: `cos_${'2'.repeat(43)}` };

/** Builds the log of an organization, whose secret was rotated before its last entry. */
function buildOrganizationLog() {
  let previous = 'coppice-organization-audit-v1:org1';
  return [1, 2, 3].map((seq) => {
    const audit_key_id = seq === 3 ? 'ask2' : 'ask1';
    const actor = { address: null, id: null, type: 'operator' };
    const rest = { organization_id: 'org1', seq, ts: `2026-11-22T00:00:00.00${seq}Z` };
    const named = { actor, audit_key_id, data: { cents: seq }, event: 'credit.granted' };
    const text = `${previous}\n${JSON.stringify({ ...named, ...rest })}`;
    previous = `sha256:${createHmac('sha256', ORGANIZATION_SECRETS[audit_key_id]).update(text).digest('hex')}`;
    return JSON.stringify({ ...rest, ...named, hmac: previous });
  });
}

const LOG = buildLog();
const HEAD = `4:${JSON.parse(LOG[3] ?? '').hmac}`;

/** @param {readonly string[]} lines */
function write(lines, end = '\n') {
  const path = join(directory, 'log.ndjson');
  writeFileSync(path, lines.join('\n') + end);
  return path;
}

/**
 * @param {string[]} args
 * @param {Record<string, string>} env
 * @returns {Promise<{ code: number, output: string }>}
 */
function verify(args, env = { COPPICE_TEAM_SECRET: SECRET }) {
  return new Promise((resolve) => {
    const options = { env: { ...process.env, ...env } };
    const child = execFile(
      process.execPath,
      [COPPICE, 'audit', 'verify', ...args],
      options,
      (_, out, error) => resolve({ code: child.exitCode ?? -1, output: out + error }),
    );
  });
}

test('a complete log is valid, with the secret from the variable or a file, with or without a head', async () => {
  const path = write(LOG);
  const { code, output } = await verify([path]);
  assert.equal(code, 0, output);
  assert.match(output, /valid: 4 entries, none missing/);
  const secretFile = join(directory, 'secret');
  writeFileSync(secretFile, `${SECRET}\n`);
  assert.equal((await verify([path, '--secret-file', secretFile, '--head', HEAD], {})).code, 0);
});

test('an altered log is not valid, and the message says where', async () => {
  const altered = LOG.with(2, (LOG[2] ?? '').replace('é 2', 'é 3'));
  const { code, output } = await verify([write(altered)]);
  assert.equal(code, 1);
  assert.match(output, /NOT VALID \(altered\): entry 3 is not what was written; 2 entries before it valid/);
});

test('the head reveals a cut-off end; without a head the log is not complete, unless checked as a prefix', async () => {
  const cut = write(LOG.slice(0, 3));
  const byHead = await verify([cut, '--head', HEAD]);
  assert.equal(byHead.code, 1);
  assert.match(byHead.output, /the end is missing: 3 entries/);
  const without = await verify([cut]);
  assert.equal(without.code, 1);
  assert.match(without.output, /--head .* --prefix/);
  assert.equal((await verify([cut, '--prefix'])).code, 0);
  const half = await verify([write([...LOG.slice(0, 3), (LOG[3] ?? '').slice(0, 40)], ''), '--prefix']);
  assert.equal(half.code, 1);
  assert.match(half.output, /line 4 is not an audit entry/);
});

test('a log that cannot be checked gives the reason and the remedy', async () => {
  const cases = /** @type {const} */ ([
    [[join(directory, 'absent')], {}, /secret of the team or organization is required: give --secret-file/],
    [[join(directory, 'absent')], undefined, /absent cannot be read: ENOENT/],
    [[write(LOG), '--head', 'x'], undefined, /--head is neither .* x cannot be read/],
    [[write(LOG), '--secret-file', '/dev/null'], undefined, /\/dev\/null is empty/],
    [[write(LOG), '--sekret', 'x'], undefined, /sekret[\s\S]*coppice audit verify --help/],
    [[], undefined, /missing required argument 'file'[\s\S]*coppice audit verify --help/],
  ]);
  for (const [args, env, message] of cases) {
    const { code, output } = await verify([...args], env);
    assert.equal(code, 2, output);
    assert.match(output, message);
  }
});

test('the log of an organization is verified with the secrets that its entries name', async () => {
  const lines = buildOrganizationLog();
  const path = write(lines);
  const secretFile = join(directory, 'secrets');
  const give = (/** @type {object} */ secrets) =>
    writeFileSync(
      secretFile,
      Object.entries(secrets)
        .map(([id, secret]) => `${id} ${secret}\n`)
        .join(''),
    );
  const head = `3:${JSON.parse(lines[2] ?? '').hmac}`;
  const check = (/** @type {string[]} */ ...args) => verify([path, '--secret-file', secretFile, ...args], {});
  give(ORGANIZATION_SECRETS);
  assert.deepEqual((await check('--head', head)).code, 0);
  assert.equal((await check('--prefix')).code, 0);
  assert.equal((await check()).code, 1);
  write(lines.with(1, (lines[1] ?? '').replace('"cents":2', '"cents":9')));
  assert.match((await check('--head', head)).output, /NOT VALID \(altered\): entry 2/);
  write(lines);
  give({ ask1: ORGANIZATION_SECRETS.ask1 });
  assert.match((await check('--head', head)).output, /NOT VALID \(unknown_secret\): entry 3/);
  writeFileSync(secretFile, `${SECRET}\n`);
  const { code, output } = await check('--head', head);
  assert.equal(code, 2);
  assert.match(output, /a line "<id> <secret>" for each/);
});
