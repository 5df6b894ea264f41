import { signal } from '@preact/signals';
import { recall, remember } from './remembered.ts';

export type Theme = 'system' | 'light' | 'dark';

export const theme = signal<Theme>(readTheme());

/** Applies a theme, and keeps it for the next visit. */
export function chooseTheme(chosen: Theme): void {
  theme.value = chosen;
  remember('theme', chosen);
  const { dataset } = document.documentElement;
  if (chosen === 'system') delete dataset['theme'];
  else dataset['theme'] = chosen;
}

function readTheme(): Theme {
  const chosen = recall('theme');
  return chosen === 'light' || chosen === 'dark' ? chosen : 'system';
}
