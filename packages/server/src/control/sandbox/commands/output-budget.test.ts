import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import fc from 'fast-check';
import { DEFAULT_CONTROL_LIMITS } from '../../control-config.ts';
import { COMMAND_FLOOR_BYTES, FairPool, OutputBudget, type HeldOutput } from './output-budget.ts';
import { BLOCK_BYTES } from './output-capture.ts';

const { execOutputBytes, execOutputTotalBytes, openRequestsPerOrganization } = DEFAULT_CONTROL_LIMITS;
const ORGANIZATIONS = ['org1', 'org2', 'org3', 'org4'] as const;

const isCapacity = (error: unknown): boolean => error instanceof AppError && error.code === 'capacity';

test('a pool is never overdrawn, and a take leaves at least as much free as the organization holds', () => {
  const step = fc.record({
    organization: fc.constantFrom(...ORGANIZATIONS),
    bytes: fc.integer({ min: 1, max: 40 }),
    isTake: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.nat({ max: 200 }), fc.array(step, { maxLength: 80 }), (totalBytes, steps) => {
      const pool = new FairPool(totalBytes);
      const held = new Map<string, number>(ORGANIZATIONS.map((one) => [one, 0]));
      const sum = (): number => [...held.values()].reduce((total, bytes) => total + bytes, 0);
      for (const { organization, bytes, isTake } of steps) {
        const own = held.get(organization) ?? 0;
        if (isTake) {
          const fits = own + bytes <= totalBytes - sum() - bytes;
          assert.equal(pool.take(organization, bytes), fits);
          if (fits) held.set(organization, own + bytes);
        } else if (own >= bytes) {
          pool.give(organization, bytes);
          held.set(organization, own - bytes);
        } else assert.throws(() => pool.give(organization, bytes), RangeError);
        assert.ok(sum() <= totalBytes);
      }
    }),
  );
});

test('with the default limits the limit of open requests is reached before the floors are used up', () => {
  const budget = new OutputBudget(execOutputTotalBytes);
  assert.ok(openRequestsPerOrganization <= budget.commandsOfOne);
  const open: HeldOutput[] = [];
  for (const organization of ['a', 'b', 'c', 'd', 'e', 'f', 'g'])
    for (let count = 0; count < openRequestsPerOrganization; count += 1)
      open.push(budget.open(organization, execOutputBytes));
  using _newcomer = budget.open('h', execOutputBytes);
  for (const held of open) held[Symbol.dispose]();
});

test('any number of greedy organizations cut no other command below its floor', () => {
  const action = fc.record({
    organization: fc.constantFrom(...ORGANIZATIONS),
    kind: fc.constantFrom('start', 'write', 'end'),
    bytes: fc.nat({ max: 6 * BLOCK_BYTES }),
  });
  const MAX_STREAM_BYTES = 4 * BLOCK_BYTES;
  fc.assert(
    fc.property(fc.array(action, { maxLength: 120 }), (actions) => {
      const budget = new OutputBudget(16 * COMMAND_FLOOR_BYTES);
      const open: { organization: string; held: HeldOutput; written: number }[] = [];
      for (const { organization, kind, bytes } of actions) {
        const own = open.filter((one) => one.organization === organization);
        if (kind === 'start') {
          const others = open.length - own.length;
          // Half of the budget has floors for 8 commands; as many must be free as the organization then has.
          const fits = own.length + 1 <= 8 - own.length - others - 1;
          if (fits)
            open.push({ organization, held: budget.open(organization, MAX_STREAM_BYTES), written: 0 });
          else assert.throws(() => budget.open(organization, MAX_STREAM_BYTES), isCapacity);
        } else if (own[0] !== undefined && kind === 'write') {
          own[0].held.stdout.push(Buffer.alloc(bytes, 'x'));
          own[0].written += bytes;
        } else if (own[0] !== undefined) {
          own[0].held[Symbol.dispose]();
          open.splice(open.indexOf(own[0]), 1);
        }
      }
      for (const { held, written } of open) {
        const kept = held.stdout.text.length;
        assert.ok(kept >= Math.min(written, BLOCK_BYTES), `${kept} of ${written}`);
        assert.equal(held.stdout.isTruncated, kept < written);
      }
    }),
    { numRuns: 60 },
  );
});

test('sixteen commands that hold 32 MiB each leave other organizations their floor and a share', () => {
  const budget = new OutputBudget(execOutputTotalBytes);
  const flood = Buffer.alloc(execOutputBytes, 'x');
  const greedy = Array.from({ length: 20 }, () => budget.open('a', execOutputBytes));
  for (const { stdout, stderr } of greedy) {
    stdout.push(flood);
    stderr.push(flood);
    assert.ok(stdout.text.length >= BLOCK_BYTES);
  }
  const kept = greedy.reduce((sum, { stdout, stderr }) => sum + stdout.text.length + stderr.text.length, 0);
  assert.ok(kept >= execOutputTotalBytes / 4 && kept <= execOutputTotalBytes / 3, `${kept}`);
  assert.ok(greedy.at(-1)?.stderr.isTruncated);
  using other = budget.open('b', execOutputBytes);
  other.stdout.push(flood);
  assert.equal(other.stdout.isTruncated, false);
  for (const held of greedy) held[Symbol.dispose]();
});

test('a budget without room for the floors of two organizations is refused', () => {
  assert.throws(() => new OutputBudget(7 * COMMAND_FLOOR_BYTES), RangeError);
});
