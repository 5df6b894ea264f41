import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { pollUntil } from '../../lib/waiting/deadline.ts';
import { CommandWatch, type WatchedSandbox } from './command-watch.ts';

const TIMEOUT_MS = 5_000;
const SANDBOX: WatchedSandbox = { id: 'a', organization_id: 'o', parent_id: null, status: 'running' };
const STARTED = { row: SANDBOX };

const until = (step: string, check: () => boolean) =>
  pollUntil({ step, timeoutMs: TIMEOUT_MS, intervalMs: 1 }, () => Promise.resolve(check() || undefined));

/** A watch of a guest without commands. Each question whether one may run is answered by the test. */
function openWatch({ watch }: { watch: () => AsyncGenerator<never> }) {
  const questions: ((hasOpen: boolean) => void)[] = [];
  const seen = { lists: 0 };
  const store = {
    listOfGuest: () => Promise.resolve([]),
    hasOpen: () => new Promise<boolean>((resolve) => questions.push(resolve)),
  };
  const runner = {
    list: () => {
      seen.lists += 1;
      return Promise.resolve([]);
    },
    watch,
  };
  type Parts = ConstructorParameters<typeof CommandWatch>[0];
  const parts = {
    commandsOf: () => runner,
    store,
    audit: {},
    clock: { wallMs: () => 0 },
    retryMs: 1,
  } as unknown as Parts;
  return { commands: new CommandWatch({ ...parts, log: pino({ level: 'silent' }) }), questions, seen };
}

test('a command is followed though its sandbox was found without one while it was being started', async () => {
  const { commands, questions, seen } = openWatch({ watch: async function* () {} });
  await using _ = commands;
  commands.starting(STARTED, 'first')[Symbol.dispose]();
  await until('the first question', () => questions.length === 1);
  const starting = commands.starting(STARTED, 'second');
  questions[0]?.(false);
  await new Promise(setImmediate);
  starting[Symbol.dispose]();
  await until('the second list', () => seen.lists === 2);
  await until('the second question', () => questions.length === 2);
  questions[1]?.(false);
});

test('a command is followed though it starts while the watch before it is being closed', async () => {
  const closing = Promise.withResolvers<void>();
  let isClosing = false;
  async function* watch(): AsyncGenerator<never> {
    try {
      yield { id: 'ended' } as never;
    } finally {
      isClosing = true;
      await closing.promise;
    }
  }
  const { commands, questions, seen } = openWatch({ watch });
  await using _ = commands;
  commands.recorder.settle = () => Promise.resolve(true);
  commands.starting(STARTED, 'first')[Symbol.dispose]();
  await until('the question before the watch', () => questions.length === 1);
  questions[0]?.(true);
  await until('the question after an end', () => questions.length === 2);
  questions[1]?.(false);
  await until('the close of the watch', () => isClosing);
  commands.starting(STARTED, 'second')[Symbol.dispose]();
  closing.resolve();
  await until('the second list', () => seen.lists === 2);
  await until('the question of the second follower', () => questions.length === 3);
  questions[2]?.(false);
});

/** Replaces the recorder. Each comparison is completed by the test. */
function holdComparisons(commands: CommandWatch) {
  type Options = Parameters<CommandWatch['recorder']['agree']>[2];
  const comparisons: (Options & { complete: () => void })[] = [];
  commands.recorder.agree = (_sandbox, _inGuest, options) =>
    new Promise((resolve) => comparisons.push({ ...options, complete: () => resolve(0) }));
  return comparisons;
}

test('a command is not lost though its whole start falls between the list of the guest and the comparison', async () => {
  const { commands, questions, seen } = openWatch({ watch: async function* () {} });
  await using _ = commands;
  const comparisons = holdComparisons(commands);
  commands.starting(STARTED, 'first')[Symbol.dispose]();
  await until('the list', () => seen.lists === 1);
  commands.starting(STARTED, 'second')[Symbol.dispose]();
  await until('the comparison', () => comparisons.length === 1);
  assert.equal(comparisons[0]?.isStarting('second'), true);
  comparisons[0]?.complete();
  await until('the question', () => questions.length === 1);
  questions[0]?.(true);
  await until('the next comparison', () => comparisons.length === 2);
  assert.equal(comparisons[1]?.isStarting('second'), false);
  comparisons[1]?.complete();
  await until('the next question', () => questions.length === 2);
  questions[1]?.(false);
});

test('a rollback during a comparison lets the next one revive commands', async () => {
  const { commands, questions } = openWatch({ watch: async function* () {} });
  await using _ = commands;
  const comparisons = holdComparisons(commands);
  commands.starting(STARTED, 'first')[Symbol.dispose]();
  await until('the comparison', () => comparisons.length === 1);
  commands.rolledBack(SANDBOX);
  comparisons[0]?.complete();
  await until('the next comparison', () => comparisons.length === 2);
  assert.equal(comparisons[1]?.mayRevive, true);
  comparisons[1]?.complete();
  await until('the question', () => questions.length === 1);
  questions[0]?.(false);
});
