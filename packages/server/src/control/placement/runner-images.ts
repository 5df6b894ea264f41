/** Calls of the runner that make images of VMs, and give them up. */
import { z } from 'zod';
import { StoredCapture, type CaptureOwner } from '../../lib/protocol/capture-protocol.ts';
import {
  CommittedImage,
  OwnedImagesPage,
  StoredConfig,
  type CommitVm,
  type OwnedImage,
} from '../../lib/protocol/runner-protocol.ts';
import { get, send, vmPath, type RunnerConnection } from './runner-connection.ts';

/** The runner reads all files of the guest and packs them with those of the image: at most 15 minutes each, and turns before them. */
const COMMIT_DEADLINE_MS = 40 * 60_000;
const RELEASE_DEADLINE_MS = 30_000;
/** Longer than the runner's own limit for storing an image. */
const STORE_DEADLINE_MS = 6 * 3_600_000;
const REMOVE_DEADLINE_MS = 60_000;

export class RunnerImages {
  readonly #connection: RunnerConnection;

  constructor(connection: RunnerConnection) {
    this.#connection = connection;
  }

  /** Returns the image that a VM was started from. */
  read(sandboxId: string): Promise<StoredConfig> {
    return this.#connection.callJson(get(imagePath(sandboxId)), StoredConfig);
  }

  /** Returns a stored image. Throws `image_not_found`. */
  find(digest: string): Promise<StoredConfig> {
    return this.#connection.callJson(get(`/images/${digest}`), StoredConfig);
  }

  /** Protects an image of an organization from eviction, or no longer. Returns false if it is not stored. */
  async keep(digest: string, organization: string, kept: boolean): Promise<boolean> {
    const request = send('POST', `/images/${digest}/keep`, { organization, kept });
    const answer = z.object({ stored: z.boolean() });
    return (await this.#connection.callJson({ ...request, isRepeatable: true }, answer)).stored;
  }

  /** Makes an image of the files of a VM. A repeated call makes another image of the same build. */
  commit(sandboxId: string, commit: CommitVm, signal: AbortSignal): Promise<CommittedImage> {
    const request = send('POST', imagePath(sandboxId), commit, COMMIT_DEADLINE_MS);
    return this.#connection.callJson({ ...request, signal }, CommittedImage);
  }

  /** Lists images that organizations have built: of one, of one build, or all. */
  async listOwned(asked: { organization?: string; build?: string }): Promise<OwnedImage[]> {
    const images: OwnedImage[] = [];
    for (let after: string | undefined = ''; after !== undefined;) {
      const query = new URLSearchParams({ ...asked, ...(after !== '' && { after }) });
      const page: z.infer<typeof OwnedImagesPage> = await this.#connection.callJson(
        get(`/images/owned?${query.toString()}`),
        OwnedImagesPage,
      );
      images.push(...page.images);
      after = page.next;
    }
    return images;
  }

  /** Puts a built image of this runner into the object store, which may take long. The runner continues without this call. */
  store(digest: string, organization: string, signal: AbortSignal): Promise<StoredCapture> {
    const body: CaptureOwner = { organization };
    const request = send('PUT', `/images/${digest}/objects`, body, STORE_DEADLINE_MS);
    const background = { isRepeatable: true, isBackground: true } as const;
    return this.#connection.callJson({ ...request, signal, ...background }, StoredCapture);
  }

  /** Removes a built image from the object store. It need not exist. */
  async removeStored(digest: string, organization: string): Promise<void> {
    const query = new URLSearchParams({ organization }).toString();
    const request = { method: 'DELETE', path: `/images/${digest}/objects?${query}` } as const;
    await this.#connection.callBytes({
      ...request,
      headDeadlineMs: REMOVE_DEADLINE_MS,
      isRepeatable: true,
    });
  }

  /** Gives up an image that was built. It need not exist. */
  async release(digest: string): Promise<void> {
    const path = `/images/${digest}`;
    const request = {
      method: 'DELETE',
      path,
      headDeadlineMs: RELEASE_DEADLINE_MS,
      isRepeatable: true,
    } as const;
    await this.#connection.callJson(request, z.object({ released: z.boolean() }));
  }
}

function imagePath(sandboxId: string): string {
  return `${vmPath(sandboxId)}/image`;
}
