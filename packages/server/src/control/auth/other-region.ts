import { AppError } from '@coppice/contract';

export interface RegionsOfKeys {
  /** The region of this installation. */
  region: string;
  /** Addresses of the services of regions, as far as the operator has configured them. */
  regionAddresses: ReadonlyMap<string, string>;
}

/** Throws `unauthorized` for a key of another region. The error says where the key belongs, which every client shows. */
export function assertOwnRegion(keyRegion: string, { region, regionAddresses }: RegionsOfKeys): void {
  if (keyRegion === region) return;
  const address = regionAddresses.get(keyRegion);
  const message = `this API key belongs to region "${keyRegion}": use ${address ?? `the service of "${keyRegion}"`}; this service is of region "${region}"`;
  throw new AppError('unauthorized', message, {
    details: { region: { name: keyRegion, base_url: address ?? null } },
  });
}

/** Whether the error is that of {@link assertOwnRegion}. */
export function isOtherRegion({ details }: AppError): boolean {
  return details?.['region'] !== undefined;
}
