import type { IconName } from '../ui/Icon.tsx';

export interface QuickAction {
  label: string;
  href: string;
  icon: IconName;
  /** Other words by which it is found. */
  words?: string;
  /** Shown behind the label. */
  note?: string;
}

/** Returns the actions in which every word of the query occurs: those whose label begins with it come first. */
export function rankActions(actions: readonly QuickAction[], query: string): QuickAction[] {
  const words = query.toLowerCase().split(/\s+/u).filter(Boolean);
  if (words.length === 0) return [...actions];
  return actions
    .map((action, index) => ({ action, index, score: score(action, words) }))
    .filter(({ score: points }) => points > 0)
    .sort((a, b) => b.score - a.score || a.index - b.index)
    .map(({ action }) => action);
}

function score({ label, words: others = '' }: QuickAction, words: readonly string[]): number {
  const name = label.toLowerCase();
  const rest = others.toLowerCase();
  let total = 0;
  for (const word of words) {
    const points = name.startsWith(word)
      ? 8
      : name.includes(` ${word}`)
        ? 4
        : name.includes(word)
          ? 2
          : rest.includes(word)
            ? 1
            : 0;
    if (points === 0) return 0;
    total += points;
  }
  return total;
}
