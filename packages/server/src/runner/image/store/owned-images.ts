/** Lists the images that organizations have built. There may be very many, so there are pages. */
import type { OwnedImagesQuery } from '../../../lib/protocol/runner-protocol.ts';
import { imageKey, type CacheLeases } from '../../cache/cache-leases.ts';
import type { OwnedEntry, StoredImages } from './stored-images.ts';

const PAGE_LENGTH = 500;

/** `isLinked`: VMs or captures hold its file, so that its bytes stay when it is removed. */
type ListedImage = OwnedEntry & { isLinked: boolean };

export interface OwnedPage {
  images: ListedImage[];
  /** The digest after which the next page begins; undefined for the last page. */
  next: string | undefined;
}

/** Returns a page of the images that are asked for, in the order of their digests. */
export async function listOwned(
  images: StoredImages,
  leases: CacheLeases,
  asked: OwnedImagesQuery,
): Promise<OwnedPage> {
  const page: OwnedEntry[] = [];
  let next: string | undefined;
  for (const entry of images.owned(asked.after)) {
    const { organization, build } = entry.owner;
    if (organization !== (asked.organization ?? organization) || build !== (asked.build ?? build)) continue;
    if (page.length === PAGE_LENGTH) {
      next = page.at(-1)?.digest;
      break;
    }
    page.push(entry);
  }
  const describe = async (entry: OwnedEntry): Promise<ListedImage> => {
    const isLinked = leases.isHeld(imageKey(entry.digest)) || (await images.isLinked(entry.digest));
    return { ...entry, isLinked };
  };
  return { images: await Promise.all(page.map(describe)), next };
}
