/**
 * Modules that the guest's kernel gets when it asks for them, mostly those of container engines and firewalls. The agent
 * keeps them compressed, and loads no others (docs/decisions/0069-docker-in-a-sandbox.md).
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { normalize, orderModules } from './kernel-modules.mjs';

/** By use, without the modules that they depend on. A kernel may lack some, or have them built in. */
const MODULES_BY_USE = {
  links: 'bridge br_netfilter veth macvlan ipvlan dummy',
  // iptables-nft needs them, too.
  nftables: `
    nf_tables nft_compat nft_chain_nat nft_ct nft_nat nft_masq nft_redir nft_log nft_limit nft_hash nft_numgen nft_fib_inet
    nft_reject nft_reject_inet nft_reject_ipv4 nft_reject_ipv6 nf_conntrack_netlink nf_log_syslog`,
  'iptables-legacy': `
    ip_tables iptable_filter iptable_nat iptable_mangle iptable_raw ipt_REJECT
    ip6_tables ip6table_filter ip6table_nat ip6table_mangle ip6table_raw ip6t_REJECT`,
  'matches and targets of iptables': `
    xt_addrtype xt_conntrack xt_MASQUERADE xt_nat xt_REDIRECT xt_mark xt_connmark xt_comment xt_multiport xt_tcpudp
    xt_owner xt_limit xt_LOG xt_state xt_statistic xt_physdev xt_CHECKSUM xt_TCPMSS xt_iprange`,
};

export const ON_DEMAND = Object.values(MODULES_BY_USE).flatMap((names) => names.trim().split(/\s+/u));

/**
 * @param {import('./kernel-modules.mjs').ModuleTree} tree
 * @param {readonly string[]} atBoot names of the modules that the agent loads at boot
 * @returns {{ module: import('./kernel-modules.mjs').KernelModule, before: string[] }[]} `before`: what to load first
 */
export function chooseOnDemand(tree, atBoot) {
  const known = new Set(atBoot);
  const late = orderModules(tree, { required: [], optional: ON_DEMAND }).filter(
    ({ name }) => !known.has(name),
  );
  return late.map((module) => ({
    module,
    before: orderModules(tree, { required: module.depends, optional: [] })
      .map(({ name }) => name)
      .filter((name) => !known.has(name)),
  }));
}

/**
 * Builds the file by which the agent finds a module: a line for each, with its name, the modules to load before it
 * (separated by commas, or `-`), and its aliases. Dashes in names are underscores.
 * @param {ReturnType<typeof chooseOnDemand>} chosen
 */
export function buildIndex(chosen) {
  return chosen
    .map(({ module, before }) =>
      [module.name, before.join(',') || '-', ...module.aliases.map(normalize)].join(' '),
    )
    .map((line) => `${line}\n`)
    .join('');
}

/**
 * Writes the files that the agent finds in `/on-demand` of the initramfs.
 * @param {ReturnType<typeof chooseOnDemand>} chosen
 * @param {string} directory
 */
export async function writeOnDemand(chosen, directory) {
  await mkdir(directory);
  await writeFile(join(directory, 'index'), buildIndex(chosen));
  for (const { module } of chosen) {
    await writeFile(join(directory, `${module.name}.ko.gz`), gzipSync(module.content, { level: 9 }));
  }
}
