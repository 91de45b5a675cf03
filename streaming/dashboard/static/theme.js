// The theme: light, dark, or the system's. It is loaded before the page is drawn, so that the page does not flash.
(() => {
  const THEMES = ["auto", "light", "dark"];
  const kept = () => {
    try {
      return localStorage.getItem("theme");
    } catch {
      return null; // a browser may forbid storage
    }
  };
  const set = (theme) => {
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem("theme", theme);
    } catch {
      // the theme is valid until the page is closed
    }
  };
  document.documentElement.dataset.theme = THEMES.includes(kept()) ? kept() : "auto";
  window.theme = { all: THEMES, get: () => document.documentElement.dataset.theme, set };
})();
