import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { DeadlineError } from '../../lib/waiting/deadline.ts';
import { repeatUntilInTime } from './boot-in-time.ts';

const RIGHT = { device: 'lapic', rate_hz: 62_500_000 };
const WRONG = { device: 'lapic', rate_hz: 91_136_000 };

/** Boots whose guests give the answers in `answers`, in order; the last answer repeats. */
function newBoots(...answers: unknown[]) {
  const boots: { kills: number; isOpen: boolean }[] = [];
  const boot = () => {
    const booted = { kills: 0, isOpen: true };
    boots.push(booted);
    const answer = answers[Math.min(boots.length, answers.length) - 1];
    const session = {
      call: () => (answer instanceof Error ? Promise.reject(answer) : Promise.resolve(answer)),
      close: () => void (booted.isOpen = false),
    };
    return Promise.resolve({
      vm: {
        kill: () => Promise.resolve(void (booted.kills += 1)),
        consoleTail: () => Promise.resolve('the last words'),
      },
      session,
      booted,
    });
  };
  return { boots, boot };
}

const log = pino({ level: 'silent' });

test('a guest with a correct timer is accepted immediately', async () => {
  const { boots, boot } = newBoots(RIGHT);
  const { booted } = await repeatUntilInTime(boot, log);
  assert.deepEqual(boots, [{ kills: 0, isOpen: true }]);
  assert.equal(booted, boots[0]);
});

test('a guest that measured a wrong rate is ended and booted again', async () => {
  const { boots, boot } = newBoots(WRONG, { device: 'pit', rate_hz: 1_193_182 }, RIGHT);
  const { booted } = await repeatUntilInTime(boot, log);
  const ended = { kills: 1, isOpen: false };
  assert.deepEqual(boots, [ended, ended, { kills: 0, isOpen: true }]);
  assert.equal(booted, boots[2]);
});

test('a guest that never measures the right rate is accepted after the last boot', async () => {
  const { boots, boot } = newBoots(WRONG);
  const { booted } = await repeatUntilInTime(boot, log);
  assert.equal(boots.length, 8);
  assert.equal(booted, boots[7]);
  assert.deepEqual(booted, { kills: 0, isOpen: true });
});

test('a guest that does not answer is ended and booted again once, and its last output is logged', async () => {
  const silence = new DeadlineError('an answer', 1);
  const lines: string[] = [];
  const told = pino({ level: 'warn' }, { write: (line) => void lines.push(line) });
  const { boots, boot } = newBoots(silence, WRONG, RIGHT);
  const { booted } = await repeatUntilInTime(boot, told);
  assert.equal(booted, boots[2]);
  assert.deepEqual(boots[0], { kills: 1, isOpen: false });
  assert.match(lines[0] ?? '', /the last words/u);

  const never = newBoots(silence);
  await assert.rejects(repeatUntilInTime(never.boot, log), DeadlineError);
  assert.deepEqual(
    never.boots.map(({ kills }) => kills),
    [1, 1],
  );
});

test('a guest with an invalid answer is ended', async () => {
  for (const answer of [new Error('no'), {}, { device: 'lapic', rate_hz: '62500000' }]) {
    const { boots, boot } = newBoots(answer);
    await assert.rejects(repeatUntilInTime(boot, log));
    assert.deepEqual(
      boots.map(({ kills }) => kills),
      [1],
    );
  }
});
