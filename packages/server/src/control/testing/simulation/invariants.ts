/**
 * Invariants that must hold whenever no operation is running, whatever happened before: in a simulation and in the soak
 * on the real service. The cost of a rest grows with the live sandboxes; ended ones are read again once, at the end.
 */
import assert from 'node:assert/strict';
import type { AuditHead, SandboxRecord, SnapshotRecord } from '@coppice/contract';
import { verifyEntries } from '../verify-log.ts';
import type { Bill } from './bills.ts';
import type { Ledger, Told } from './ledger.ts';
import type { Bounds } from './ran-for.ts';
import { parseReply, type CallOptions, type Reply, type RestingService } from './resting-service.ts';

const FINAL: ReadonlySet<string> = new Set(['destroyed', 'failed']);
/** Ends that no caller requested, but that the limits of the sandbox cause. */
const BY_TIME: ReadonlySet<string | null> = new Set(['idle_timeout', 'max_lifetime', 'expires_at']);
const PAGE = 'limit=500';

/** Checks all that had not ended before: no record lost, nothing leaked, audit chains whole, nothing billed twice. */
export async function assertInvariants(service: RestingService, ledger: Ledger): Promise<void> {
  await service.assertAgreement();
  if (ledger.asked.size > 0) {
    await askAgain(service, ledger);
    await service.assertAgreement();
  }
  await assertListed(service, ledger);
  await assertBills(service, ledger);
  for (const [id, told] of ledger.told) {
    const record = await readRecord(service, id);
    assertTold(record, told);
    assertNotEarly(record, told, service.findRanFor(id) ?? told.ranFor.countTo(performance.now()));
    await assertAudit(service, record, told);
    ledger.settle(record);
  }
  ledger.noteRested();
}

/**
 * Checks at the end that the records of ended sandboxes have not changed since they were first read, that their audit
 * logs are whole, and that bills add up.
 */
export async function assertKept(service: RestingService, ledger: Ledger): Promise<void> {
  const path = `/v1/runs?${PAGE}&status=destroyed&status=failed`;
  const left = new Map(ledger.ended);
  for (const record of await list<SandboxRecord>(service, path)) {
    const ended = left.get(record.id);
    if (ended === undefined) continue;
    assert.equal(JSON.stringify(record), ended);
    await assertAudit(service, record);
    left.delete(record.id);
  }
  assert.deepEqual([...left.keys()], [], 'records of sandboxes that have ended are gone');
  assertAddUp(await service.readBills('all'));
}

/** Checks that a caller gets one sandbox, however often it repeats a create with the same Idempotency-Key. */
async function askAgain(service: RestingService, ledger: Ledger): Promise<void> {
  for (const [key, { path, body, atMs }] of ledger.asked) {
    const options = { body, headers: { 'idempotency-key': key } };
    const first = await ask(service, 'POST', path, options);
    // 404: its disk was deleted meanwhile.
    assert.ok([201, 404, 409].includes(first.status), `${first.status} ${first.text}`);
    ledger.noteAnswered(key);
    if (first.status !== 201) continue;
    const { id } = parseReply(first) as SandboxRecord;
    const again = await ask(service, 'POST', path, options);
    assert.equal((parseReply(again) as SandboxRecord).id, id);
    ledger.noteRunning(id, atMs);
  }
}

/** Checks that answered snapshots exist. Watches sandboxes that no caller knows of from now on. */
async function assertListed(service: RestingService, ledger: Ledger): Promise<void> {
  for (const { id } of await list<SandboxRecord>(service, `/v1/runs?${PAGE}`)) ledger.noteFound(id);
  const kept = new Set((await list<SnapshotRecord>(service, `/v1/snapshots?${PAGE}`)).map(({ id }) => id));
  const missing = [...ledger.snapshots].filter((id) => !kept.has(id));
  assert.deepEqual(missing, [], 'snapshots that were answered are gone');
}

function assertTold(record: SandboxRecord, { status, isVmKilled }: Told): void {
  const { id, status_reason: reason, auto_hibernate: isAuto, timeout, max_lifetime } = record;
  // A control that was killed during a removal cannot tell the next one why it removed the VM.
  const isExpired = reason === 'requested' && (timeout > 0 || max_lifetime !== null);
  const isByTime = record.status === 'destroyed' && (BY_TIME.has(reason) || isExpired);
  const isExcused = isByTime || (isVmKilled && FINAL.has(record.status));
  const allowed = {
    running: record.status === 'running' || isExcused || (isAuto && record.status === 'hibernated'),
    hibernated: record.status === 'hibernated' || isExcused || (isAuto && record.status === 'running'),
    destroyed: record.status === 'destroyed' || isExcused,
    unknown: true,
  }[status ?? 'unknown'];
  assert.ok(allowed, `${id} is ${record.status} (${reason}), expected is ${status}`);
  if (FINAL.has(record.status)) assert.ok(reason !== null, `${id} has no reason for its end`);
}

/** Checks that no sandbox was idle for longer than it ran. Control may learn of a killed VM after its due time. */
function assertNotEarly(
  { id, status_reason: reason, timeout }: SandboxRecord,
  { isVmKilled }: Told,
  { atMostMs }: Bounds,
): void {
  if (reason !== 'idle_timeout' || isVmKilled) return;
  assert.ok(atMostMs >= timeout * 1000, `${id} ran for ${atMostMs} ms and was idle for ${timeout} s`);
}

/** Checks that the audit log is one complete unbroken chain, with all actions that were answered to callers. */
async function assertAudit(
  service: RestingService,
  { id, audit_key_id: keyId }: SandboxRecord,
  { execs, rollbacks }: Pick<Told, 'execs' | 'rollbacks'> = { execs: 0, rollbacks: 0 },
): Promise<void> {
  const head = parseReply(await read(service, `/v1/runs/${id}/audit?head=true`)) as AuditHead;
  const { text } = await read(service, `/v1/runs/${id}/audit`);
  assert.ok(keyId !== null, `${id} has no key of its audit log`);
  await verifyEntries({ text, head, secret: await service.readAuditSecret(keyId), sandboxId: id });
  const count = (event: string): number => text.split(`"${event}"`).length - 1;
  assert.ok(
    count('exec.exit') >= execs,
    `${id}: ${execs} commands were answered, ${count('exec.exit')} are in its log`,
  );
  assert.ok(count('sandbox.rolled_back') >= rollbacks, `${id}: rollbacks are missing in its log`);
}

/** Checks that nothing is billed twice or for a time without a VM, and that sums are those of their parts. */
async function assertBills(service: RestingService, ledger: Ledger): Promise<void> {
  const read = await service.readBills([...ledger.told.keys()]);
  assertAddUp(read);
  for (const bill of read.bills) {
    const ranFor = service.findRanFor(bill.id) ?? ledger.told.get(bill.id)?.ranFor.countTo(performance.now());
    if (ranFor !== undefined) assertBilledFor(bill, ranFor);
  }
}

function assertAddUp({ contradictions }: { contradictions: readonly string[] }): void {
  assert.deepEqual(contradictions, [], 'bills do not add up');
}

function assertBilledFor(
  { id, status, status_reason: reason, billed_ms: billedMs }: Bill,
  ran: Bounds,
): void {
  const { atLeastMs, atMostMs } = ran;
  const what = `${id} (${status}, ${reason}) ran for ${atLeastMs} to ${atMostMs} ms and is billed for ${billedMs} ms`;
  assert.ok(billedMs <= atMostMs, what);
  // A failed sandbox is billed until its VM was last seen.
  if (status === 'destroyed') assert.ok(billedMs >= atLeastMs, what);
}

async function readRecord(service: RestingService, id: string): Promise<SandboxRecord> {
  return parseReply(await read(service, `/v1/runs/${id}`)) as SandboxRecord;
}

/** Reads all pages of a list. */
async function list<T>(service: RestingService, path: string): Promise<T[]> {
  const found: T[] = [];
  for (let next: string | undefined = path; next !== undefined;) {
    const reply: Reply = await read(service, next);
    found.push(...(parseReply(reply) as T[]));
    next = /<([^>]+)>; rel="next"/u.exec(reply.headers.get('link') ?? '')?.[1];
  }
  return found;
}

async function read(service: RestingService, path: string): Promise<Reply> {
  const reply = await ask(service, 'GET', path);
  assert.equal(reply.status, 200, `GET ${path} answered ${reply.status} ${reply.text}`);
  return reply;
}

async function ask(
  service: RestingService,
  method: string,
  path: string,
  options?: CallOptions,
): Promise<Reply> {
  const reply = await service.call(method, path, options);
  assert.ok(reply !== undefined, 'the service does not answer at rest');
  return reply;
}
