/** Images that the fake runner makes of its VMs. */
import type { ServerHttp2Stream } from 'node:http2';
import { CommitVm, type CommittedImage } from '../../../lib/protocol/runner-protocol.ts';
import { answer, readAll } from './fake-answers.ts';

const CONFIG = { env: { PATH: '/bin' }, user: '', workdir: '/base' };

export class FakeBuiltImages {
  readonly commits: CommitVm[] = [];
  readonly released: string[] = [];
  sizeBytes = 1000;
  /** Called before an image is made; may throw the error that is answered. */
  onCommit: () => Promise<void> | void = () => undefined;
  #count = 0;

  async answer(stream: ServerHttp2Stream, method: string, _vmId: string): Promise<void> {
    if (method === 'GET') return answer(stream, 200, { digest: digestOf(0), config: CONFIG });
    this.commits.push(CommitVm.parse(JSON.parse((await readAll(stream)).toString('utf8'))));
    await this.onCommit();
    this.#count += 1;
    const made: CommittedImage = { digest: digestOf(this.#count), size_bytes: this.sizeBytes };
    return answer(stream, 201, made);
  }

  release(stream: ServerHttp2Stream, digest: string): void {
    this.released.push(digest);
    answer(stream, 200, { released: true });
  }
}

function digestOf(number: number): string {
  return `sha256:${String(number).padStart(64, '0')}`;
}
