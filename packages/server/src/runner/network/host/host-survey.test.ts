import assert from 'node:assert/strict';
import { test } from 'node:test';
import { buildAddressPlan } from '../addresses/address-plan.ts';
import { listResolverAddresses, surveyHost } from './host-survey.ts';
import type { Interface } from '../kernel/kernel-tools.ts';
import { buildInstanceNames } from '../addresses/slot-names.ts';

const names = buildInstanceNames('1a2b');
const plan = buildAddressPlan('10.202.0.0/16');

function link(
  ifname: string,
  address?: string,
  options: { label?: string; isHeld?: boolean; mtu?: number } = {},
): Interface {
  const [local, prefix] = (address ?? '').split('/');
  const info = { family: 'inet', local, prefixlen: Number(prefix), label: options.label ?? ifname };
  return {
    ifname,
    mtu: options.mtu ?? 1500,
    flags: options.isHeld === true ? ['UP', 'LOWER_UP'] : ['UP', 'NO-CARRIER'],
    addr_info: address === undefined ? [] : [info],
  };
}

const survey = (interfaces: Interface[], routes: { dst: string; dev: string }[] = []) =>
  surveyHost({ interfaces, routes }, names, plan);

test('TAPs with the right address are found, held or not', () => {
  const interfaces = [
    link('cop1a2b-0', '10.202.0.5/30', { isHeld: true }),
    link('cop1a2b-2', '10.202.0.13/30'),
    link('eth0', '192.0.2.2/24'),
  ];
  assert.deepEqual(survey(interfaces), { found: [0, 2], staleTaps: [], staleResolvers: [], mtu: 1500 });
});

test('a TAP of another range is stale, but one that a sandbox holds prevents the change of the range', () => {
  assert.deepEqual(survey([link('cop1a2b-0', '10.99.0.5/30'), link('cop1a2b-1')]).staleTaps, [
    'cop1a2b-0',
    'cop1a2b-1',
  ]);
  assert.throws(() => survey([link('cop1a2b-0', '10.99.0.5/30', { isHeld: true })]), /set guestCidr back/u);
});

test('the resolver’s address in a former range is stale, the present one is not', () => {
  const label = names.resolverLabel;
  assert.deepEqual(survey([link('lo', '10.202.0.1/32', { label })]).staleResolvers, []);
  assert.deepEqual(survey([link('lo', '10.99.0.1/32', { label })]).staleResolvers, ['10.99.0.1/32']);
  assert.deepEqual(listResolverAddresses([link('lo', '10.202.0.1/32', { label })], names), ['10.202.0.1/32']);
});

test('foreign addresses and routes inside the range are refused, wider routes are not', () => {
  assert.throws(() => survey([link('cop9999-0', '10.202.0.5/30')]), {
    code: 'invalid_request',
    message: /on cop9999-0/u,
  });
  assert.throws(() => survey([], [{ dst: '10.202.8.0/24', dev: 'tun0' }]), /10\.202\.8\.0\/24 on tun0/u);
  assert.throws(() => survey([], [{ dst: '10.202.8.7', dev: 'tun0' }]), /in use/u);
  survey(
    [],
    [
      { dst: '10.0.0.0/8', dev: 'tun0' },
      { dst: '10.202.0.4/30', dev: 'cop1a2b-0' },
    ],
  );
});

test('guests get the MTU of the uplink, at most that of Ethernet', () => {
  const routes = [{ dst: 'default', dev: 'eth0' }];
  assert.equal(survey([link('eth0', undefined, { mtu: 1400 })], routes).mtu, 1400);
  assert.equal(survey([link('eth0', undefined, { mtu: 9001 })], routes).mtu, 1500);
  assert.equal(survey([link('eth0', undefined, { mtu: 1400 })]).mtu, 1500);
});
