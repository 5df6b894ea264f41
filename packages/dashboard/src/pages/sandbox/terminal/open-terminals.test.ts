import assert from 'node:assert/strict';
import { test } from 'node:test';
import { forgetTerminal, holdTerminals, keepTerminal } from './open-terminals.ts';

test('terminals close soon after the page of their sandbox is left, and not when it is drawn anew', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const closed: string[] = [];
  const terminal = (name: string): { close: () => void } => ({ close: () => closed.push(name) });
  const gone = terminal('gone');
  keepTerminal('a', terminal('a1'));
  keepTerminal('a', gone);
  keepTerminal('b', terminal('b1'));
  forgetTerminal('a', gone);

  const leave = holdTerminals('a');
  leave();
  t.mock.timers.tick(1000);
  const leaveAgain = holdTerminals('a');
  t.mock.timers.tick(60_000);
  assert.deepEqual(closed, []);

  leaveAgain();
  t.mock.timers.tick(60_000);
  assert.deepEqual(closed, ['a1']);
});
