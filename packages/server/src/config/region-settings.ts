/** The region of this installation, and the addresses of those of other regions. */
import { isRegionName } from '@coppice/contract';
import { z } from 'zod';
import { splitList } from './comma-list.ts';

const LOOPBACK = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])$/u;

/** Addresses by region. The region of this installation may be among them, so that all can have the same setting. */
const Regions = z.string().transform((text, context): ReadonlyMap<string, string> => {
  const addresses = new Map<string, string>();
  const refuse = (message: string) => {
    context.addIssue({ code: 'custom', message });
    return z.NEVER;
  };
  for (const item of splitList(text)) {
    const [, region = '', address = ''] = /^([^=]*)=(.*)$/u.exec(item) ?? [];
    const baseUrl = findBaseUrl(address);
    if (!isRegionName(region) || baseUrl === undefined)
      return refuse(`"${item}" is not region=https://host, such as eu=https://eu.api.example.com`);
    if (addresses.has(region)) return refuse(`names the region "${region}" twice`);
    addresses.set(region, baseUrl);
  }
  return addresses;
});

/** Keys are sent there: only an address on this machine may be without TLS. Returns undefined for any other text. */
function findBaseUrl(text: string): string | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || url.username !== '' || url.password !== '' || /[?#]/u.test(text)) return undefined;
  const isSafe = url.protocol === 'https:' || (url.protocol === 'http:' && LOOPBACK.test(url.hostname));
  return isSafe ? `${url.origin}${url.pathname}`.replace(/\/+$/u, '') : undefined;
}

export const REGION_SETTINGS = {
  COPPICE_REGION: z
    .string()
    .regex(/^[a-z]{2,8}$/u, 'must be 2–8 lowercase letters, such as us')
    .default('us'),
  COPPICE_REGIONS: Regions.prefault(''),
};
