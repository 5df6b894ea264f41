import type { ITheme } from '@xterm/xterm';
import { effect, signal } from '@preact/signals';
import { theme } from '../../../app/theme.ts';

const LIGHT: ITheme = {
  background: '#ffffff',
  foreground: '#16201c',
  cursor: '#1a6b50',
  cursorAccent: '#ffffff',
  selectionBackground: '#bfe3d3',
  scrollbarSliderBackground: '#00000022',
  scrollbarSliderHoverBackground: '#00000040',
  scrollbarSliderActiveBackground: '#00000055',
  black: '#16201c',
  red: '#a5262f',
  green: '#14653f',
  yellow: '#7a4a00',
  blue: '#1f57a8',
  magenta: '#8a2a82',
  cyan: '#0d6470',
  white: '#6a756f',
  brightBlack: '#55625d',
  brightRed: '#c4323c',
  brightGreen: '#1a7d50',
  brightYellow: '#8f5a08',
  brightBlue: '#2b6bc7',
  brightMagenta: '#a63c9d',
  brightCyan: '#127a88',
  brightWhite: '#3a4842',
};

const DARK: ITheme = {
  background: '#0f1513',
  foreground: '#e6edea',
  cursor: '#6fd3ab',
  cursorAccent: '#0f1513',
  selectionBackground: '#2b5546',
  scrollbarSliderBackground: '#ffffff22',
  scrollbarSliderHoverBackground: '#ffffff40',
  scrollbarSliderActiveBackground: '#ffffff55',
  black: '#26322d',
  red: '#ff8a8a',
  green: '#6fdca0',
  yellow: '#f2c078',
  blue: '#8ab8ff',
  magenta: '#e0a0e8',
  cyan: '#7fd8e0',
  white: '#c8d3ce',
  brightBlack: '#7d8c85',
  brightRed: '#ffadad',
  brightGreen: '#97ebbd',
  brightYellow: '#f8d7a6',
  brightBlue: '#b3d1ff',
  brightMagenta: '#ecc2f1',
  brightCyan: '#a8e8ee',
  brightWhite: '#ffffff',
};

/** Calls `apply` with the colours of the page, now and whenever they change, until the returned function is called. */
export function followTheme(apply: (colours: ITheme) => void): () => void {
  const query = matchMedia('(prefers-color-scheme: dark)');
  const isSystemDark = signal(query.matches);
  const note = (): void => {
    isSystemDark.value = query.matches;
  };
  query.addEventListener('change', note);
  const stop = effect(() => {
    const isDark = theme.value === 'system' ? isSystemDark.value : theme.value === 'dark';
    apply(isDark ? DARK : LIGHT);
  });
  return () => {
    query.removeEventListener('change', note);
    stop();
  };
}
