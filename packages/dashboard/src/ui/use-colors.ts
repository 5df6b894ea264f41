import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';

/** Colours of the page that a canvas needs as plain values. */
const NAMES = ['--accent', '--busy', '--line', '--soft'] as const;
export type Colors = Readonly<Record<(typeof NAMES)[number], string>>;

/** Returns the colours of the present theme, again after each change of it. */
export function useColors(): Colors {
  const colors = useSignal(readColors());
  useEffect(() => {
    const update = (): void => {
      colors.value = readColors();
    };
    const system = matchMedia('(prefers-color-scheme: dark)');
    system.addEventListener('change', update);
    const chosen = new MutationObserver(update);
    chosen.observe(document.documentElement, { attributeFilter: ['data-theme'] });
    return () => {
      system.removeEventListener('change', update);
      chosen.disconnect();
    };
  }, []);
  return colors.value;
}

/** A custom property is a text such as `light-dark(…)`; only the colour of an element is resolved. */
function readColors(): Colors {
  const probe = document.createElement('span');
  probe.hidden = true;
  document.body.append(probe);
  const read = (name: string): string => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const colors = Object.fromEntries(NAMES.map((name) => [name, read(name)])) as Colors;
  probe.remove();
  return colors;
}
