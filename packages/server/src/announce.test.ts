import assert from 'node:assert/strict';
import { test } from 'node:test';
import { describeAlone } from './announce.ts';

test('a control without a supervisor names its address and the files of its secrets, and never shows a secret', () => {
  const bootstrap = { apiKey: 'cop_live_us_x', invitation: 'inv_x', directory: '/data/control' };
  const address = 'http://127.0.0.1:8080';
  const text = describeAlone({ type: 'control-ready', address, hasDashboard: true, bootstrap }).join('\n');
  assert.match(text, /^coppice is listening on http:\/\/127\.0\.0\.1:8080$/mu);
  assert.match(text, /^ {2}\/data\/control\/first-api-key$/mu);
  assert.match(text, /^ {2}\/data\/control\/first-invitation$/mu);
  assert.match(text, /^dashboard: http:\/\/127\.0\.0\.1:8080\/$/mu);
  assert.doesNotMatch(text, /cop_live_|inv_x/u);
});

test('a runner without a supervisor names its accelerator and what its sandboxes lack', () => {
  const message = { type: 'runner-ready', accelerator: 'tcg', reason: 'no KVM' } as const;
  assert.deepEqual(describeAlone({ ...message, networkAbsence: 'no TUN', missingLimits: 'cpu (v1)' }), [
    'accelerator: tcg (no KVM)',
    'network: none (no TUN)',
    'sandboxes are not limited in: cpu (v1)',
  ]);
});
