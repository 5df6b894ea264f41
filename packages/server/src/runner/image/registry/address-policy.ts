/** The addresses that callers must not reach: those of the operator's networks and this machine's own. */
import { BlockList, isIP } from 'node:net';
import { networkInterfaces } from 'node:os';

const NOT_PUBLIC_V4 = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '224.0.0.0/3',
];
const NOT_PUBLIC_V6 = [
  '::/96',
  '64:ff9b::/96',
  '64:ff9b:1::/48',
  '2002::/16',
  'fc00::/7',
  'fe80::/10',
  'fec0::/10',
  'ff00::/8',
];

const notPublic = buildBlockList();

/** Whether an IP address, without brackets, is private or no address. Judges IPv4 within IPv6 as IPv4. */
export function isPrivateAddress(address: string): boolean {
  const bare = address.replace(/%.*$/u, '');
  const family = isIP(bare);
  if (family === 0) return true;
  if (notPublic.check(bare, family === 6 ? 'ipv6' : 'ipv4')) return true;
  return Object.values(networkInterfaces()).some((entries) =>
    entries?.some((entry) => entry.address === bare),
  );
}

function buildBlockList(): BlockList {
  const list = new BlockList();
  const add = (ranges: readonly string[], family: 'ipv4' | 'ipv6') => {
    for (const range of ranges) {
      const [network = '', bits = ''] = range.split('/');
      list.addSubnet(network, Number(bits), family);
    }
  };
  add(NOT_PUBLIC_V4, 'ipv4');
  add(NOT_PUBLIC_V6, 'ipv6');
  return list;
}
