import { networkSlug } from '../../packages/server/src/config/default-paths.mjs';
import { findExecutable } from '../setup/paths.mjs';
import { run } from '../setup/run-command.mjs';

const TIMEOUT_MS = 30_000;

/**
 * Returns the names of an installation's parts in the host's network, which are derived from its data directory
 * (packages/server/src/runner/network/addresses/slot-names.ts).
 * @param {string} dataDir
 */
export function buildNetworkNames(dataDir) {
  const slug = networkSlug(dataDir);
  return {
    slug,
    table: `coppice_${slug}`,
    tap: new RegExp(`^cop${slug}-\\d{1,5}$`, 'u'),
    label: `lo:cop${slug}`,
  };
}

/**
 * @param {string} dataDir
 * @param {import('./removal-report.mjs').RemovalReport} report
 */
export async function removeNetwork(dataDir, report) {
  const names = buildNetworkNames(dataDir);
  if (findExecutable('ip') !== undefined) {
    const links = await listLinks();
    // The interfaces must be gone before the rules that guard them.
    for (const tap of links.map(({ ifname }) => ifname).filter((name) => names.tap.test(name))) {
      await change('ip', ['link', 'delete', 'dev', tap], `removing the interface ${tap}`);
      report.remove(`interface ${tap}`);
    }
    for (const address of listOwnAddresses(links, names.label)) {
      await change('ip', ['address', 'delete', address, 'dev', 'lo'], `removing ${address} from lo`);
      report.remove(`address ${address} on lo`);
    }
  }
  if (findExecutable('nft') !== undefined && (await hasTable(names.table))) {
    await change(
      'nft',
      ['delete', 'table', 'inet', names.table],
      `removing the nftables table ${names.table}`,
    );
    report.remove(`nftables table inet ${names.table}`);
  }
}

/**
 * @typedef {{ family?: string, local?: string, prefixlen?: number, label?: string }} Address
 * @typedef {{ ifname: string, addr_info: Address[] }} Link
 *
 * @param {readonly Link[]} links
 * @param {string} label
 * @returns {string[]} addresses with that label, except those of 127.0.0.0/8
 */
export function listOwnAddresses(links, label) {
  const addresses = links.find(({ ifname }) => ifname === 'lo')?.addr_info ?? [];
  return addresses
    .filter((address) => address.label === label && address.local?.startsWith('127.') === false)
    .map(({ local, prefixlen }) => `${local}/${prefixlen}`);
}

/** @returns {Promise<Link[]>} */
async function listLinks() {
  const shown = await run('ip', ['-json', 'address'], { step: 'listing interfaces', timeoutMs: TIMEOUT_MS });
  /** @type {Link[]} */
  const links = JSON.parse(shown.stdout || '[]');
  return links.filter(({ ifname }) => ifname !== undefined);
}

/** @param {string} table */
async function hasTable(table) {
  // The command fails where the kernel has no nftables: then there is no table either.
  const listed = await run('nft', ['list', 'tables', 'inet'], {
    step: 'listing nftables tables',
    timeoutMs: TIMEOUT_MS,
    allowFailure: true,
  });
  return listed.stdout.split('\n').includes(`table inet ${table}`);
}

/**
 * @param {string} command
 * @param {string[]} args
 * @param {string} step
 */
async function change(command, args, step) {
  await run(command, args, { step, timeoutMs: TIMEOUT_MS });
}
