/** Surveys the host's interfaces and routes for an instance: its own TAPs, and other users of its addresses. */
import { AppError } from '@coppice/contract';
import {
  buildSlotAddresses,
  contains,
  overlaps,
  parseCidr,
  type AddressPlan,
  type Cidr,
} from '../addresses/address-plan.ts';
import type { Interface, Route } from '../kernel/kernel-tools.ts';
import { findTapIndex, type InstanceNames } from '../addresses/slot-names.ts';

const ETHERNET_MTU = 1500;
/** The packet size that every IPv4 host must accept. */
const MIN_MTU = 576;

export interface HostSurvey {
  /** Slots whose TAP exists with the right address. */
  found: number[];
  /** TAPs of the instance that do not fit the plan and are not held. */
  staleTaps: string[];
  /** Addresses of the instance on `lo` that do not fit the plan, as `a.b.c.d/n`. */
  staleResolvers: string[];
  /** MTU of guests, that of the uplink, so that their packets need no fragmentation. */
  mtu: number;
}

/** Interfaces and routes as the kernel lists them. */
export interface HostNetwork {
  interfaces: readonly Interface[];
  routes: readonly Route[];
}

/** Throws `invalid_request` when `guestCidr` cannot be used on this host now. */
export function surveyHost(host: HostNetwork, names: InstanceNames, plan: AddressPlan): HostSurvey {
  const use = findAddressUse(host, names, plan.guests);
  if (use !== undefined) throw inUse(plan, use);
  const staleResolvers = listResolverAddresses(host.interfaces, names).filter(
    (own) => own !== `${plan.resolver}/32`,
  );
  const survey: HostSurvey = { found: [], staleTaps: [], staleResolvers, mtu: findMtu(host) };
  for (const link of host.interfaces) {
    const index = findTapIndex(names, link.ifname);
    if (index === undefined) continue;
    if (hasGateway(link, plan, index)) survey.found.push(index);
    else if (isHeld(link)) throw heldElsewhere(link, plan);
    else survey.staleTaps.push(link.ifname);
  }
  return survey;
}

/** Lists the addresses that this instance has put on `lo`, as `a.b.c.d/n`. */
export function listResolverAddresses(interfaces: readonly Interface[], names: InstanceNames): string[] {
  return interfaces
    .flatMap((link) => link.addr_info)
    .filter(({ label }) => label === names.resolverLabel)
    .map(({ local, prefixlen }) => `${local}/${prefixlen}`);
}

export interface AddressUse {
  /** Address or range. */
  address: string;
  interfaceName: string;
}

/** Finds another user of addresses in the range on the host. */
export function findAddressUse(
  host: HostNetwork,
  names: InstanceNames,
  guests: Cidr,
): AddressUse | undefined {
  for (const link of host.interfaces) {
    if (findTapIndex(names, link.ifname) !== undefined) continue;
    for (const { family, local, label } of link.addr_info) {
      if (family !== 'inet' || local === undefined || label === names.resolverLabel) continue;
      if (overlaps(guests, parseCidr('address', `${local}/32`)))
        return { address: local, interfaceName: link.ifname };
    }
  }
  for (const { dst, dev } of host.routes) {
    if (dst === 'default' || dev === undefined || findTapIndex(names, dev) !== undefined) continue;
    // A wider route (10.0.0.0/8 into a VPN) may stay: the routes of the slots have longer prefixes and win.
    if (contains(guests, parseCidr('route', dst.includes('/') ? dst : `${dst}/32`)))
      return { address: dst, interfaceName: dev };
  }
  return undefined;
}

/** Whether a VMM has one of this instance's TAPs open. */
export function hasHeldTap({ interfaces }: HostNetwork, names: InstanceNames): boolean {
  return interfaces.some((link) => findTapIndex(names, link.ifname) !== undefined && isHeld(link));
}

function hasGateway(link: Interface, plan: AddressPlan, index: number): boolean {
  if (index >= plan.capacity) return false;
  const { gateway, prefix } = buildSlotAddresses(plan, index);
  return link.addr_info.some((address) => address.local === gateway && address.prefixlen === prefix);
}

/** A TAP has a carrier as long as a VMM has it open. */
function isHeld(link: Interface): boolean {
  return link.flags.includes('LOWER_UP');
}

function findMtu({ interfaces, routes }: HostNetwork): number {
  const uplink = routes.find((route) => route.dst === 'default')?.dev;
  const mtu = interfaces.find((link) => link.ifname === uplink)?.mtu ?? ETHERNET_MTU;
  return Math.max(MIN_MTU, Math.min(ETHERNET_MTU, mtu));
}

function inUse(plan: AddressPlan, { address, interfaceName }: AddressUse): AppError {
  const message = `guestCidr: ${plan.guests.text} is in use on this host (${address} on ${interfaceName}); choose another range, or remove the leftovers of a former instance`;
  return new AppError('invalid_request', message);
}

function heldElsewhere(link: Interface, plan: AddressPlan): AppError {
  const remedy = 'set guestCidr back, destroy the sandboxes, then change it';
  return new AppError(
    'invalid_request',
    `guestCidr: a running sandbox on ${link.ifname} is outside ${plan.guests.text}; ${remedy}`,
  );
}
