import assert from 'node:assert/strict';
import { test } from 'node:test';
import { describeBootstrap, describeDashboard, describeRunner, showKey } from './start-report.ts';

const SECRETS = { apiKey: 'cop_live_us_x', invitation: 'inv_x' };

test('a terminal shows secrets, and a journal shows only their files', () => {
  const shown = describeBootstrap(SECRETS).join('\n');
  assert.match(
    shown,
    /shown this once:\n\n {2}cop_live_us_x\n\nInvitation .*shown this once:\n\n {2}inv_x\n/u,
  );
  const kept = describeBootstrap({ ...SECRETS, directory: '/data/control' }).join('\n');
  assert.doesNotMatch(kept, /cop_live_us_x|inv_x/u);
  assert.match(kept, /mode 0600.*\n\n {2}\/data\/control\/first-api-key\n/u);
  assert.match(kept, /\n\n {2}\/data\/control\/first-invitation\n/u);
  assert.deepEqual(describeBootstrap({ directory: '/data/control' }), []);
});

test('a link to the dashboard has the invitation in its fragment, if it may be shown', () => {
  const address = 'http://127.0.0.1:8080';
  const [shown = ''] = describeDashboard(address, { invitation: 'inv_x' });
  assert.match(shown, /\n\n {2}http:\/\/127\.0\.0\.1:8080\/sign-up#invitation=inv_x\n/u);
  const plain = [`dashboard: ${address}/`];
  assert.deepEqual(describeDashboard(address, { invitation: 'inv_x', directory: '/data/control' }), plain);
  assert.deepEqual(describeDashboard(address, {}), plain);
});

test('a command in a journal reads the key from its file', () => {
  assert.equal(showKey('cop_live_us_x', undefined), 'cop_live_us_x');
  assert.equal(showKey('cop_live_us_x', '/my data'), "$(cat '/my data/first-api-key')");
});

test('the report of a runner names the host ranges and limits of this installation', () => {
  const runner = { type: 'runner-ready', accelerator: 'tcg', reason: 'no KVM' } as const;
  const ranges = { guestCidr: '10.203.0.0/16', uidBase: 1_620_000 };
  assert.deepEqual(describeRunner({ ...runner, ranges }), [
    'accelerator: tcg (no KVM)',
    'guest addresses: 10.203.0.0/16',
    'user ids of VMs: from 1620000',
  ]);
  assert.deepEqual(describeRunner({ ...runner, ranges, networkAbsence: 'no TUN' }), [
    'accelerator: tcg (no KVM)',
    'network: none (no TUN)',
    'user ids of VMs: from 1620000',
  ]);
  assert.deepEqual(describeRunner({ ...runner, networkAbsence: 'not root' }).length, 2);
  assert.deepEqual(describeRunner({ ...runner, missingLimits: 'cpu (no controller)' }), [
    'accelerator: tcg (no KVM)',
    'sandboxes are not limited in: cpu (no controller)',
  ]);
});
