import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NoNetwork } from './no-network.ts';
import { RESTRICTED, UNRESTRICTED } from './testing/test-site.ts';
import { addressesOf, TAP_SLOTS } from './vm-network.ts';

test('slots are numbers without a TAP: a VM gets the lowest free one, keeps it, and a release frees it', async () => {
  const network = new NoNetwork('there is no /dev/net/tun', 2);
  const [a, again, b] = await Promise.all(['a', 'a', 'b'].map((vm) => network.acquire(vm)));
  assert.deepEqual(a, { index: TAP_SLOTS, tap: undefined });
  assert.deepEqual(again, a);
  assert.equal(b?.index, TAP_SLOTS + 1);
  assert.equal(addressesOf(a), undefined);
  await assert.rejects(network.acquire('c'), { code: 'capacity' });
  await network.release('a');
  await network.release('nobody');
  assert.equal((await network.acquire('c')).index, TAP_SLOTS);
});

test('a VM without a TAP is adopted with its number, which no other VM gets', async () => {
  const network = new NoNetwork('why');
  const known = { vmId: 'run7', egress: UNRESTRICTED };
  assert.equal((await network.adopt('old', TAP_SLOTS, known)).index, TAP_SLOTS);
  await assert.rejects(network.adopt('other', TAP_SLOTS, known), { code: 'internal' });
  assert.equal((await network.acquire('new')).index, TAP_SLOTS + 1);
});

test('a VM that has a TAP is not adopted when nothing can filter its packets', async () => {
  const network = new NoNetwork('there is no nft');
  const adopting = network.adopt('old', 0, { vmId: 'run7', egress: UNRESTRICTED });
  await assert.rejects(adopting, /nothing here can filter: there is no nft/u);
});

test('rules and secrets are refused when they cannot be enforced, and a policy without rules is accepted', async () => {
  const network = new NoNetwork('there is no nft');
  assert.throws(() => network.assertEgress(RESTRICTED), {
    code: 'invalid_request',
    message: 'network: sandboxes have no network here (there is no nft); leave it out',
  });
  await assert.rejects(network.setEgress('a', { vmId: 'run7', egress: RESTRICTED }), {
    code: 'invalid_request',
  });
  await network.setEgress('a', { vmId: 'run7', egress: UNRESTRICTED });
  await assert.rejects(network.readEgress(), { code: 'not_found' });
});
