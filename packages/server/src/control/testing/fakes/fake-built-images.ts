/** Images that the fake runner makes of its VMs. */
import type { ServerHttp2Stream } from 'node:http2';
import { AppError } from '@coppice/contract';
import {
  CommitVm,
  KeepImage,
  type CommittedImage,
  type ImageConfig,
  type OwnedImage,
  type StoredConfig,
} from '../../../lib/protocol/runner-protocol.ts';
import { answer, readAll } from './fake-answers.ts';

const CONFIG: ImageConfig = { env: { PATH: '/bin' }, user: '', workdir: '/base' };

interface Made extends CommittedImage {
  organization: string;
  build: string;
  config: ImageConfig;
  isKept: boolean;
  /** Whether something holds a link to its file. */
  isLinked: boolean;
  isReleased: boolean;
}

export class FakeBuiltImages {
  readonly commits: CommitVm[] = [];
  readonly released: string[] = [];
  /** By digest. */
  readonly made = new Map<string, Made>();
  sizeBytes = 1000;
  /** Called before an image is made; may throw the error that is answered. */
  onCommit: (commit: CommitVm) => Promise<void> | void = () => undefined;
  /** Called before an image is kept. */
  onKeep: (digest: string) => void = () => undefined;

  /** Answers for the image of a VM, whose reference is given. */
  async answerVm(stream: ServerHttp2Stream, method: string, reference: string): Promise<void> {
    if (method === 'GET') return answer(stream, 200, this.#describe(digestIn(reference)));
    const commit = CommitVm.parse(JSON.parse((await readAll(stream)).toString('utf8')));
    this.commits.push(commit);
    await this.onCommit(commit);
    const digest = `sha256:${String(this.commits.length).padStart(64, '0')}`;
    const image: CommittedImage = { digest, size_bytes: this.sizeBytes };
    const { organization, build, config, kept: isKept } = commit;
    this.made.set(digest, {
      ...image,
      organization,
      build,
      config,
      isKept,
      isLinked: false,
      isReleased: false,
    });
    return answer(stream, 201, image);
  }

  /** Answers for the list of images that organizations have built, in one page. */
  list(stream: ServerHttp2Stream, asked: URLSearchParams): void {
    const has = (name: string, value: string): boolean => [null, value].includes(asked.get(name));
    const images = [...this.made.values()]
      .filter(({ organization, build }) => has('organization', organization) && has('build', build))
      .map(describeOwned);
    answer(stream, 200, { images });
  }

  /** Answers for a stored image. */
  async answer(stream: ServerHttp2Stream, method: string, path: string): Promise<void> {
    const digest = digestIn(path);
    if (method === 'GET') return answer(stream, 200, this.#describe(digest));
    if (method === 'DELETE') {
      this.released.push(digest);
      const image = this.made.get(digest);
      if (image?.isLinked === true) image.isReleased = true;
      else this.made.delete(digest);
      return answer(stream, 200, { released: image !== undefined });
    }
    const { kept } = KeepImage.parse(JSON.parse((await readAll(stream)).toString('utf8')));
    this.onKeep(digest);
    const image = this.made.get(digest);
    if (image !== undefined) image.isKept = kept;
    return answer(stream, 200, { stored: image !== undefined });
  }

  /** An image that was not built is any that a registry could have. */
  #describe(digest: string): StoredConfig {
    const image = this.made.get(digest);
    if (image !== undefined) return { digest, size_bytes: image.size_bytes, config: image.config };
    if (/^sha256:0+\d{1,6}$/u.test(digest)) throw new AppError('image_not_found', 'no such image');
    return { digest, size_bytes: 1000, config: CONFIG };
  }
}

function describeOwned(made: Made): OwnedImage {
  const {
    digest,
    size_bytes,
    organization,
    build,
    isKept: kept,
    isLinked: linked,
    isReleased: released,
  } = made;
  const prepared_at = '2026-01-01T00:00:00.000Z';
  return { digest, size_bytes, organization, build, kept, linked, released, prepared_at, shapes: [] };
}

/** Returns the first digest: the fake runner adds one to any reference. */
function digestIn(reference: string): string {
  return /sha256:[0-9a-f]{64}/u.exec(reference)?.[0] ?? '';
}
