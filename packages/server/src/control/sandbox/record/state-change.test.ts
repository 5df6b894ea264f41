import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import {
  EVENT_REASONS,
  SANDBOX_EVENTS,
  SANDBOX_STATES,
  STATUS_REASONS,
  TRANSITIONS,
} from '@coppice/contract';
import { InvariantError } from '../../../lib/invariant.ts';
import { changeState } from './state-change.ts';

const CONTROL = fileURLToPath(new URL('../../', import.meta.url));
/** Ways to write a state past the table: a cast to the columns' types, and SQL that is written by hand. */
const PAST_THE_TABLE =
  /\bas (?:FromTable|StateChange|SandboxUpdate|EndUpdate|Updateable)\b|\bSET\s+status(?:_reason)?\b/u;

test('a state changes as the table says, with a reason of the event, and in no other way', () => {
  for (const from of SANDBOX_STATES)
    for (const event of SANDBOX_EVENTS)
      for (const reason of [undefined, ...STATUS_REASONS]) {
        const transition = TRANSITIONS[from][event];
        const reasons = EVENT_REASONS[event];
        const isKnown = reason === undefined ? reasons.length === 0 : reasons.includes(reason);
        if (transition.outcome === 'accept' && isKnown)
          assert.deepEqual(changeState(from, event, reason), {
            status: transition.to,
            status_reason: reason ?? null,
          });
        else
          assert.throws(() => changeState(from, event, reason), InvariantError, `${from} ${event} ${reason}`);
      }
});

test('no other file of control writes a state past the table', () => {
  const sources = readdirSync(CONTROL, { recursive: true, encoding: 'utf8' }).filter(
    (path) => path.endsWith('.ts') && !path.endsWith('.test.ts') && !path.startsWith('testing/'),
  );
  assert.ok(sources.includes('sandbox/record/state-change.ts'));
  assert.deepEqual(
    sources.filter((path) => PAST_THE_TABLE.test(readFileSync(join(CONTROL, path), 'utf8'))),
    ['sandbox/record/state-change.ts'],
  );
});
