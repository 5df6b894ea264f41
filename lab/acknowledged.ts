/** Checks that the service still has everything in the ledger. */
import assert from 'node:assert/strict';
import { verifyAudit, type AuditEntry } from '../packages/sdk/src/index.ts';
import { checkDiskSnapshots } from './disk-changes.ts';
import type { Ledger } from './ledger.ts';
import type { LabService } from './lab-service.ts';
import type { Owner } from './owner.ts';
import type { Results } from './results.ts';

export interface CheckParts {
  service: Pick<LabService, 'client' | 'acceptsKey'>;
  signIn: () => Promise<Pick<Owner, 'readAuditSecret' | 'assertAccount'>>;
  ledger: Ledger;
  results: Results;
}

/** Runs all checks, also after one has failed. Failures are recorded in `results`. */
export async function checkAcknowledged(parts: CheckParts): Promise<void> {
  const { results } = parts;
  await results.attempt('hibernation and snapshot are listed', () => checkSaved(parts));
  await results.attempt('keys: valid ones are accepted, revoked ones are refused', () => checkKeys(parts));
  await results.attempt('accounts can sign in', () => checkAccounts(parts));
  await results.attempt('bills are the acknowledged ones', () => checkBills(parts));
  await results.attempt('audit logs: HMAC chains are valid and have all acknowledged commands', () =>
    checkLogs(parts),
  );
  await results.attempt('snapshots of the disk are listed', () => checkDiskSnapshots(parts));
}

async function checkSaved({ service: { client }, ledger }: CheckParts): Promise<void> {
  const { asleep, snapshot } = ledger.acknowledged;
  assert.ok(asleep !== undefined && snapshot !== undefined);
  assert.equal((await client.sandboxes.get(asleep.id))?.status, 'hibernated');
  const snapshots = await client.snapshots.list({ runId: snapshot.runId });
  assert.ok(
    snapshots.some(({ id }) => id === snapshot.id),
    `snapshot ${snapshot.id} is listed`,
  );
}

async function checkKeys({ service, ledger }: CheckParts): Promise<void> {
  for (const [key, { id, isGood }] of Object.entries(ledger.acknowledged.keys)) {
    assert.equal(await service.acceptsKey(key), isGood, `key ${id}`);
  }
}

async function checkAccounts({ signIn, ledger }: CheckParts): Promise<void> {
  const owner = await signIn();
  for (const [email, password] of Object.entries(ledger.acknowledged.accounts))
    await owner.assertAccount(email, password);
}

async function checkBills({ service: { client }, ledger }: CheckParts): Promise<void> {
  const history = await client.history();
  for (const [id, costCents] of Object.entries(ledger.acknowledged.bills))
    assert.equal(history.find((entry) => entry.id === id)?.costCents, costCents, `bill of ${id}`);
}

async function checkLogs({ service: { client }, signIn, ledger }: CheckParts): Promise<void> {
  const owner = await signIn();
  for (const [id, { commands, head }] of Object.entries(ledger.acknowledged.logs)) {
    const sandbox = await client.sandboxes.get(id);
    assert.ok(sandbox !== null, `${id} is there`);
    const secret = await owner.readAuditSecret(sandbox.record.auditKeyId ?? '');
    const entries: AuditEntry[] = await Array.fromAsync(sandbox.audit());
    const verdict = await verifyAudit(entries, secret, { head, sandboxId: id });
    assert.ok(verdict.valid, verdict.valid ? '' : `audit log of ${id}: ${verdict.message}`);
    for (const command of commands)
      assert.ok(
        entries.some(({ event, data }) => event === 'exec.exit' && data['command'] === command),
        `${command} is in the log of ${id}`,
      );
  }
}
