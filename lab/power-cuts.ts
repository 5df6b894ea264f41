/**
 * Tests power cuts. Before each cut the lab makes several changes, and the service acknowledges them. The power is cut
 * right after the last answer, which is of another kind each time. After the boot the lab checks everything
 * acknowledged so far.
 *
 *   two sandboxes run ─► key, account, hibernate one, snapshot the other, a command in it, destroy it,
 *        ▲               write to a disk, snapshot the disk ─► cut ─► boot, service ready ─► read the disk
 *        └──── resume the one, restore the snapshot: both hold their state ◄────────────────────────────┘
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import type { Sandbox } from '../packages/sdk/src/index.ts';
import { SetupError } from '../scripts/setup/setup-error.mjs';
import { cutAfterOverwrites } from './disk-control.ts';
import { assertState, read, writeState } from './guest-state.ts';
import type { LabHost } from './host.ts';
import type { LabService } from './lab-service.ts';
import type { Ledger } from './ledger.ts';
import type { Owner } from './owner.ts';
import type { Results } from './results.ts';
import { SMALL } from './short-list.ts';
import { checkAcknowledged } from './acknowledged.ts';
import { checkDiskContents, snapshotTheDisk, writeToDisk } from './disk-changes.ts';

/** Kinds of changes, in the order in which they are made, except that one of them is moved to the end. */
const KINDS = [
  'key',
  'account',
  'hibernation',
  'snapshot',
  'audit entry',
  'bill',
  'disk write',
  'disk snapshot',
] as const;
export type Kind = (typeof KINDS)[number];

export function parseKind(text: string): Kind {
  const kind = KINDS.find((known) => known === text);
  if (kind !== undefined) return kind;
  throw new SetupError(`--kind: is "${text}"`, { remedy: `use one of "${KINDS.join('", "')}"` });
}

/** If one of these comes last, the sandbox is not destroyed before the cut. */
const NEED_SANDBOX: ReadonlySet<Kind> = new Set(['snapshot', 'audit entry']);

export interface PowerCutParts {
  host: LabHost;
  service: LabService;
  signIn: () => Promise<Owner>;
  ledger: Ledger;
  results: Results;
}

interface Pair {
  /** The sandbox to hibernate. */
  first: Sandbox;
  /** The sandbox to snapshot, which is then destroyed or lost. */
  second: Sandbox;
}

/** Cuts the power `cuts` times, always after a change of `kind` if one is given. */
export async function runPowerCuts(parts: PowerCutParts, cuts: number, kind?: Kind): Promise<void> {
  const { results, host, service, ledger } = parts;
  await results.step('the disk loses unflushed writes', () => cutAfterOverwrites(host));
  await results.step('boot, service ready', () => bootAndServe(parts));
  let pair = await results.step('two sandboxes', () => makePair(parts));
  for (let cut = 0; cut < cuts; cut++) {
    const last = kind ?? KINDS[cut % KINDS.length] ?? 'key';
    await results.step(`cut ${cut + 1}: changes acknowledged, last one: ${last}`, () =>
      acknowledge(parts, pair, last),
    );
    service.disconnect();
    await host.cutPower();
    await ledger.keep();
    await results.step('boot, service ready', () => bootAndServe(parts));
    await checkAcknowledged(parts);
    await results.attempt('the disk, a fork of its snapshot and its file system', () =>
      checkDiskContents(parts),
    );
    pair = await results.step('the hibernated sandbox resumes, the snapshot restores', () => takeBack(parts));
  }
  await results.attempt('both destroyed', async () => {
    for (const sandbox of [pair.first, pair.second]) await sandbox.destroy();
  });
}

async function bootAndServe({ host, service }: PowerCutParts): Promise<void> {
  await host.start();
  const { accelerator } = await service.ready();
  assert.equal(accelerator, 'kvm');
}

async function makePair({ service: { client } }: PowerCutParts): Promise<Pair> {
  return { first: await client.sandboxes.create(SMALL), second: await client.sandboxes.create(SMALL) };
}

async function acknowledge(parts: PowerCutParts, pair: Pair, last: Kind): Promise<void> {
  const owner = await parts.signIn();
  const token = randomBytes(6).toString('hex');
  for (const sandbox of [pair.first, pair.second]) {
    await writeState(sandbox, token);
    parts.ledger.logOf(sandbox.id).head = await sandbox.auditHead();
  }
  const others = KINDS.filter((kind) => kind !== last && !(kind === 'bill' && NEED_SANDBOX.has(last)));
  for (const kind of [...others, last]) await acknowledgeOne({ ...parts, owner, pair, token }, kind);
}

type Acknowledging = PowerCutParts & { owner: Owner; pair: Pair; token: string };

/** Makes one change. Nothing may happen between the answer and its entry in the ledger. */
async function acknowledgeOne(doing: Acknowledging, kind: Kind): Promise<void> {
  const { ledger, owner, token } = doing;
  const { acknowledged } = ledger;
  const { first, second } = doing.pair;
  switch (kind) {
    case 'key':
      return changeKeys(doing);
    case 'account': {
      const email = `${token}@lab.example`;
      acknowledged.accounts[email] = await owner.addMember(email);
      return;
    }
    case 'hibernation':
      await first.hibernate();
      acknowledged.asleep = { id: first.id, token };
      return;
    case 'snapshot': {
      const { id } = await second.snapshot();
      acknowledged.snapshot = { id, runId: second.id, token };
      return;
    }
    case 'audit entry':
      await read(second, `echo ${token}`);
      ledger.logOf(second.id).commands.push(`echo ${token}`);
      return;
    case 'bill': {
      const { costCents } = await second.destroy();
      acknowledged.bills[second.id] = costCents;
      return;
    }
    case 'disk write':
      return writeToDisk(doing, token);
    case 'disk snapshot':
      return snapshotTheDisk(doing, token);
  }
}

/** Revokes the existing keys and makes a new one. */
async function changeKeys({ ledger, owner, token }: Acknowledging): Promise<void> {
  const { keys } = ledger.acknowledged;
  for (const known of Object.values(keys).filter(({ isGood }) => isGood)) {
    await owner.revokeKey(known.id);
    known.isGood = false;
  }
  const { id, key } = await owner.makeKey(token);
  keys[key] = { id, isGood: true };
}

async function takeBack({ service: { client }, ledger }: PowerCutParts): Promise<Pair> {
  const { asleep, snapshot } = ledger.acknowledged;
  assert.ok(asleep !== undefined && snapshot !== undefined);
  const first = await client.sandboxes.get(asleep.id);
  assert.ok(first !== null, `${asleep.id} is there`);
  await first.resume();
  await assertState(first, asleep.token);
  const second = await client.sandboxes.restore(snapshot.id);
  await assertState(second, snapshot.token);
  await client.snapshots.delete(snapshot.id);
  delete ledger.acknowledged.asleep;
  delete ledger.acknowledged.snapshot;
  return { first, second };
}
