import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OPTIONS } from '../testing/test-site.ts';
import { enterHostNamespace } from '../testing/host-namespace.ts';
import { findNetworkObstacle, findRightsObstacle } from './requirements.ts';
import { openNetwork } from '../open-network.ts';
import { execFileSync } from 'node:child_process';

const isRoot = process.getuid?.() === 0;
const REASON = { skip: isRoot ? false : 'needs root, for its own network namespace' };

test('the right to change networking is read from the effective capabilities, not from the uid', () => {
  const status = (uid: number, effective: string): string =>
    `Name:\tnode\nUid:\t${uid}\t${uid}\t${uid}\t${uid}\nCapEff:\t${effective}\n`;
  assert.equal(findRightsObstacle(status(0, '000001ffffffffff')), undefined);
  assert.equal(findRightsObstacle(status(1000, '0000000000001000')), undefined);
  assert.match(findRightsObstacle(status(1000, '0000000000000000')) ?? '', /ordinary user; run it as root/u);
  assert.match(findRightsObstacle(status(0, '00000000a80425fb')) ?? '', /without CAP_NET_ADMIN/u);
});

test(
  'a machine that runs the network tests meets all requirements, and the check leaves nothing',
  REASON,
  async () => {
    using _host = enterHostNamespace();
    assert.equal(await findNetworkObstacle(OPTIONS), undefined);
    assert.equal(execFileSync('nft', ['list', 'tables'], { encoding: 'utf8', timeout: 10_000 }), '');
    const links = execFileSync('ip', ['-brief', 'link'], { encoding: 'utf8', timeout: 10_000 });
    assert.doesNotMatch(links, /cop7e57/u);
  },
);

test('a missing or failing tool is named with the remedy', REASON, async () => {
  using _host = enterHostNamespace();
  const absent = await findNetworkObstacle({ ...OPTIONS, tools: { ...OPTIONS.tools, nft: '/absent/nft' } });
  assert.match(absent ?? '', /\/absent\/nft.*; install nftables and iproute2/u);
  const failing = await findNetworkObstacle({ ...OPTIONS, tools: { ...OPTIONS.tools, ip: '/bin/false' } });
  assert.match(failing ?? '', /^\/bin\/false .*: .*; install nftables and iproute2/u);
});

test(
  'without nft, "auto" makes no TAP and no rule, "on" fails with the name of the setting, and "off" checks nothing',
  REASON,
  async () => {
    using _host = enterHostNamespace();
    const options = { ...OPTIONS, tools: { ...OPTIONS.tools, nft: '/absent/nft' } };
    const network = await openNetwork('auto', options);
    assert.match(network.absence ?? '', /\/absent\/nft/u);
    assert.equal((await network.acquire('a')).tap, undefined);
    await assert.rejects(openNetwork('on', options), /^AppError: networkMode: is on, but .*\/absent\/nft/u);
    const off = await openNetwork('off', OPTIONS);
    assert.match(off.absence ?? '', /COPPICE_NETWORK=off/u);
    const links = execFileSync('ip', ['-brief', 'link'], { encoding: 'utf8', timeout: 10_000 });
    assert.doesNotMatch(links, /cop7e57/u);
  },
);

test(
  'an unusable range makes the start fail; it does not look like a machine without a network',
  REASON,
  async () => {
    using _host = enterHostNamespace();
    await assert.rejects(
      openNetwork('auto', { ...OPTIONS, guestCidr: '203.0.113.0/24' }),
      /^AppError: guestCidr: /u,
    );
  },
);
