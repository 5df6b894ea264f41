import type { ImageReference } from '@coppice/contract';
import type { ImageLimits } from '../layers/image-limits.ts';

/** What a registry said to one access. */
export interface Answer {
  /** Of the manifest for our platform. */
  digest: string;
  /** Of what the reference means itself, which may be an index. Undefined if it is not known any more. */
  topDigest: string | undefined;
  /** When the registry said so last, on the monotonic clock; undefined for an earlier run of the service. */
  confirmedAtMs: number | undefined;
}

interface KeptAnswer extends Answer {
  /** Until when nobody is asked. */
  freshUntilMs: number;
}

const MAX_ANSWERS = 8192;

/** Answers by access and name; of the oldest there are only so many. */
export class ResolverAnswers {
  readonly #limits: ImageLimits;
  readonly #answers = new Map<string, KeptAnswer>();

  constructor(limits: ImageLimits) {
    this.#limits = limits;
  }

  find(identity: string, reference: ImageReference): Answer | undefined {
    return this.#answers.get(keyOf(identity, reference));
  }

  findFresh(identity: string, reference: ImageReference): Answer | undefined {
    const answer = this.#answers.get(keyOf(identity, reference));
    return answer !== undefined && performance.now() < answer.freshUntilMs ? answer : undefined;
  }

  /** Who was shown an image by its tag was shown what its digests mean. */
  set(identity: string, reference: ImageReference, answer: Answer): void {
    const freshUntilMs =
      answer.confirmedAtMs === undefined ? 0 : answer.confirmedAtMs + this.#limits.tagTtlMs;
    const { digest, topDigest } = answer;
    this.#put(keyOf(identity, { ...reference, digest }), { ...answer, topDigest: digest, freshUntilMs });
    if (topDigest !== undefined) {
      this.#put(keyOf(identity, { ...reference, digest: topDigest }), { ...answer, freshUntilMs });
    }
    this.#put(keyOf(identity, reference), { ...answer, freshUntilMs });
  }

  /** For a registry that fails. Fresh again, so that it is asked once in a while and not by every create. */
  recall(identity: string, reference: ImageReference, isAnonymous: boolean): Answer | undefined {
    const answer = this.#answers.get(keyOf(identity, reference));
    if (answer === undefined) return undefined;
    const ageMs = performance.now() - (answer.confirmedAtMs ?? Number.NEGATIVE_INFINITY);
    if (!isAnonymous && ageMs > this.#limits.staleAccessTtlMs) return undefined;
    answer.freshUntilMs = performance.now() + this.#limits.tagTtlMs;
    return answer;
  }

  /** A registry that does not show one image of a repository any more may not show the others either. */
  forget(identity: string, { registry, repository }: ImageReference): void {
    const prefix = `${identity} ${registry}/${repository}`;
    for (const key of this.#answers.keys()) {
      const next = key.startsWith(prefix) ? key[prefix.length] : undefined;
      if (next === ':' || next === '@') this.#answers.delete(key);
    }
  }

  #put(key: string, answer: KeptAnswer): void {
    this.#answers.delete(key);
    this.#answers.set(key, answer);
    const oldest = this.#answers.keys().next();
    if (this.#answers.size > MAX_ANSWERS && !oldest.done) this.#answers.delete(oldest.value);
  }
}

function keyOf(identity: string, { registry, repository, tag, digest }: ImageReference): string {
  return `${identity} ${registry}/${repository}${digest === undefined ? `:${tag ?? ''}` : `@${digest}`}`;
}
