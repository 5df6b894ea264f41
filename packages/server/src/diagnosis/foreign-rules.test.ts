import assert from 'node:assert/strict';
import { test } from 'node:test';
import { describeForeign, findForeignDrops, remedyFor } from './foreign-rules.ts';

const chain = (table: string, name: string, more: object = {}) => ({
  chain: { family: 'ip', table, name, handle: 1, ...more },
});
const forward = (table: string, name: string, policy = 'accept', family = 'ip') =>
  chain(table, name, { hook: 'forward', type: 'filter', prio: 0, policy, family });
const rule = (table: string, name: string, ...expr: object[]) => ({
  rule: { family: 'ip', table, chain: name, handle: 2, expr },
});
const find = (...entries: object[]) =>
  findForeignDrops(JSON.stringify({ nftables: [{ metainfo: { version: '1.0.6' } }, ...entries] }), 'cop7e57');

test('a chain whose policy is drop is found, with a remedy for the tool that created it', () => {
  const [docker] = find(forward('filter', 'FORWARD', 'drop'), chain('filter', 'DOCKER-USER'));
  assert.equal(describeForeign(docker!), 'table ip filter, chain FORWARD (its policy is drop)');
  assert.match(remedyFor(docker!), /^iptables -I DOCKER-USER -i cop\+ -j ACCEPT && /u);
  const [plain] = find(forward('filter', 'FORWARD', 'drop'));
  assert.match(remedyFor(plain!), /^iptables -I FORWARD -i cop\+ -j ACCEPT && iptables -I FORWARD -o cop\+/u);
  const [own] = find(forward('wall', 'fwd', 'drop', 'inet'));
  assert.match(remedyFor(own!), /^nft insert rule inet wall fwd iifname '"cop\*"' accept && /u);
});

test('a drop behind a jump is found, and a loop of jumps ends', () => {
  const jump = (target: string) => ({ jump: { target } });
  const found = find(
    forward('wall', 'fwd'),
    chain('wall', 'deep'),
    rule('wall', 'fwd', { counter: {} }, jump('deep')),
    rule('wall', 'deep', jump('fwd')),
    rule('wall', 'deep', { reject: { type: 'icmp' } }),
  );
  assert.deepEqual(
    found.map(({ chain: name, drops }) => [name, drops]),
    [['fwd', 'rules']],
  );
});

test('tables of Coppice, other hooks, other families and chains that only accept are not reported', () => {
  assert.deepEqual(
    find(
      forward('coppice_7e57', 'forward', 'drop', 'inet'),
      forward('coppice_doctor_12', 'forward', 'drop', 'inet'),
      forward('six', 'fwd', 'drop', 'ip6'),
      chain('wall', 'input', { hook: 'input', policy: 'drop' }),
      forward('wall', 'fwd'),
      rule('wall', 'fwd', { accept: null }),
    ),
    [],
  );
});

test('rules that name interfaces of Coppice are detected', () => {
  const match = { match: { left: { meta: { key: 'iifname' } }, right: 'cop7e57-*' } };
  const [found] = find(forward('wall', 'fwd', 'drop'), rule('wall', 'fwd', match, { accept: null }));
  assert.equal(found?.namesOurs, true);
});
