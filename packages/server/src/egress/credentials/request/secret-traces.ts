/** Finds the secret in texts of the service's answer, so that the guest does not receive it. */
import type { Secret } from '../../../lib/secret.ts';

/** A shorter secret occurs in other words by chance, so only whole words are compared with it. */
const MIN_PART_CHARACTERS = 8;
const WORD_BORDER = /[^\w+/=.~-]+/u;

/** `holds` returns true if a text contains the secret in a form in which a server would repeat it. */
export interface SecretTraces {
  holds: (text: string) => boolean;
}

/** Returns the traces of a secret. `sent` is the value of the header that carries the secret, with its prefix. */
export function traceSecrets(secret: Secret, sent: Secret): SecretTraces {
  const bare = secret.reveal();
  const token = sent.reveal().replace(/^\S+ /u, '');
  const forms = [bare, token, encodeURIComponent(bare), Buffer.from(bare).toString('base64')];
  const parts = [...new Set(forms)].map((form) => form.toLowerCase());
  return {
    holds(text) {
      const folded = text.toLowerCase();
      return parts.some((part) =>
        part.length < MIN_PART_CHARACTERS ? hasWord(folded, part) : folded.includes(part),
      );
    },
  };
}

function hasWord(text: string, word: string): boolean {
  return text === word || text.split(WORD_BORDER).includes(word);
}
