import assert from 'node:assert/strict';
import { randomBytes, X509Certificate } from 'node:crypto';
import { after, before, mock, test } from 'node:test';
import type { Database } from '../db/database.ts';
import { MASTER_KEY_BYTES, SecretBox } from '../secrets/secret-box.ts';
import { startHarness, type ControlHarness } from '../testing/control-harness.ts';
import { newId } from '../../lib/new-id.ts';
import { findControlId } from '../../lib/tls/control-role.ts';
import { ensureAuthority } from './authority.ts';
import { ControlIdentity } from './control-identity.ts';

const DAY_MS = 86_400_000;
const box = new SecretBox(randomBytes(MASTER_KEY_BYTES));
let harness: ControlHarness;
let db: Database & AsyncDisposable;
before(async () => {
  harness = await startHarness();
  db = harness.openDatabase();
});
after(async () => {
  await db[Symbol.asyncDispose]();
  await harness[Symbol.asyncDispose]();
});

test('a control without the internal listener makes no authority', async () => {
  assert.deepEqual(await db.selectFrom('authorities').select('id').execute(), []);
});

test('of controls that make the authority at once, all get the same one', async () => {
  const made = await Promise.all(Array.from({ length: 8 }, () => ensureAuthority(db, box)));
  assert.equal(new Set(made.map(({ fingerprint }) => fingerprint)).size, 1);
  const [row] = await db.selectFrom('authorities').selectAll().execute();
  assert.ok(!row?.sealed_key.includes('PRIVATE KEY'));
  const ca = new X509Certificate(made[0]?.certificate ?? '');
  const id = newId('ctl');
  for (const authority of made) {
    const cert = new X509Certificate(new ControlIdentity(authority, id).credentials.cert);
    assert.ok(cert.verify(ca.publicKey) && cert.checkIssued(ca));
    assert.equal(findControlId(cert), id);
  }
});

test('a control with another master key does not use the authority, and names the remedy', async () => {
  await ensureAuthority(db, box);
  await assert.rejects(ensureAuthority(db, new SecretBox(randomBytes(MASTER_KEY_BYTES))), {
    code: 'secret_unreadable',
    message: /give every control of an installation the same master\.key/u,
  });
});

test('the certificate of a control is renewed before it expires, for the same key', async () => {
  const identity = new ControlIdentity(await ensureAuthority(db, box), newId('ctl'));
  const first = identity.credentials;
  assert.deepEqual(identity.credentials, first);
  mock.timers.enable({ apis: ['Date'], now: Date.now() + 16 * DAY_MS });
  try {
    const later = identity.credentials;
    assert.notEqual(later.cert, first.cert);
    assert.equal(later.key, first.key);
    assert.ok(new X509Certificate(later.cert).validToDate.getTime() > Date.now() + 29 * DAY_MS);
  } finally {
    mock.timers.reset();
  }
});
