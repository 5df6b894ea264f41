import type { ITheme } from '@xterm/xterm';

const LIGHT: ITheme = {
  background: '#ffffff',
  foreground: '#16201c',
  cursor: '#1a6b50',
  cursorAccent: '#ffffff',
  selectionBackground: '#bfe3d3',
  scrollbarSliderBackground: '#00000022',
  scrollbarSliderHoverBackground: '#00000040',
  scrollbarSliderActiveBackground: '#00000055',
  // As text on white and as ground of black text, both are readable.
  black: '#16201c',
  red: '#c4323c',
  green: '#1a7f4b',
  yellow: '#8a6100',
  blue: '#2b6bc7',
  magenta: '#a63c9d',
  cyan: '#127a88',
  white: '#6a756f',
  brightBlack: '#55625d',
  brightRed: '#d43f49',
  brightGreen: '#1f8a53',
  brightYellow: '#946a00',
  brightBlue: '#3474d4',
  brightMagenta: '#b046a7',
  brightCyan: '#158291',
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
  const root = document.documentElement;
  const system = matchMedia('(prefers-color-scheme: dark)');
  const note = (): void => {
    const chosen = root.dataset['theme'];
    const isDark = chosen === undefined ? system.matches : chosen === 'dark';
    apply(isDark ? DARK : LIGHT);
  };
  const observer = new MutationObserver(note);
  observer.observe(root, { attributeFilter: ['data-theme'] });
  system.addEventListener('change', note);
  note();
  return () => {
    observer.disconnect();
    system.removeEventListener('change', note);
  };
}
